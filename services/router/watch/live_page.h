// The files of the live page (services/router/watch/live_page).
#ifndef TANDEM_SERVICES_ROUTER_WATCH_LIVE_PAGE_H_
#define TANDEM_SERVICES_ROUTER_WATCH_LIVE_PAGE_H_

#include <span>
#include <string_view>

namespace tandem {

struct LivePageFile {
  const char* path;  // path in the URL
  const char* content_type;
  std::string_view content;
};

std::span<const LivePageFile> LivePage();

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_WATCH_LIVE_PAGE_H_
