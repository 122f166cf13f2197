#include "common/security/authorization.h"

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace tandem {
namespace {

// Returns the text after the scheme and its blanks. Empty: the scheme is another one.
std::string_view AfterScheme(std::string_view header, std::string_view scheme) {
  if (header.size() <= scheme.size() || header[scheme.size()] != ' ' ||
      !absl::EqualsIgnoreCase(absl::string_view(header.data(), scheme.size()),
                              absl::string_view(scheme.data(), scheme.size()))) {
    return "";
  }
  header.remove_prefix(scheme.size());
  const size_t begin = header.find_first_not_of(' ');
  return begin == std::string_view::npos ? "" : header.substr(begin);
}

}  // namespace

std::string BearerToken(std::string_view authorization) {
  return std::string(AfterScheme(authorization, "Bearer"));
}

std::string BasicPassword(std::string_view authorization) {
  const std::string_view encoded = AfterScheme(authorization, "Basic");
  std::string pair;
  if (!absl::Base64Unescape(absl::string_view(encoded.data(), encoded.size()), &pair)) return "";
  const size_t colon = pair.find(':');
  return colon == std::string::npos ? "" : pair.substr(colon + 1);
}

}  // namespace tandem
