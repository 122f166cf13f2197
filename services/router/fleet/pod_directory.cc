#include "services/router/fleet/pod_directory.h"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/rpc/address.h"
#include "common/rpc/protocol.h"
#include "common/status.h"

namespace tandem {
namespace {

constexpr std::string_view kDns = "dns:";

// NAME:PORT of dns:NAME:PORT.
absl::StatusOr<Address> ParseName(const std::string& option, const std::string& text) {
  auto address = Address::Parse(text.substr(kDns.size()));
  if (!address.ok() || address->is_unix() || address->port() == 0) {
    return InvalidArgument(
        absl::StrCat(option, ": got '", text, "', want dns:NAME:PORT with a port from 1 to 65535"));
  }
  return address;
}

absl::StatusOr<std::vector<std::string>> ParseList(const std::string& option,
                                                   const std::string& text) {
  std::vector<std::string> addresses = absl::StrSplit(text, ',');
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (addresses[i].starts_with(kDns)) {
      return InvalidArgument(absl::StrCat(
          option, ": got '", text,
          "'; want one dns:NAME:PORT for both workers, or addresses (dns: cannot be in a list)"));
    }
    if (const auto address = Address::Parse(addresses[i]); !address.ok()) {
      return InvalidArgument(absl::StrCat(option, ": ", address.status().message()));
    }
    if (std::find(addresses.begin(), addresses.begin() + static_cast<ptrdiff_t>(i), addresses[i]) !=
        addresses.begin() + static_cast<ptrdiff_t>(i)) {
      return InvalidArgument(absl::StrCat(option, ": ", addresses[i], " is given twice"));
    }
  }
  return addresses;
}

// The addresses that have '+' between them. A path may have this character, too: what follows it is
// another address only if it looks like one.
std::vector<std::string> SplitModels(const std::string& text) {
  std::vector<std::string> addresses;
  for (const absl::string_view view : absl::StrSplit(text, '+')) {
    const std::string piece(view.data(), view.size());
    const bool is_address = piece.starts_with(kDns) || Address::Parse(piece).ok();
    if (addresses.empty() || is_address) {
      addresses.push_back(piece);
    } else {
      absl::StrAppend(&addresses.back(), "+", piece);
    }
  }
  return addresses;
}

// The addresses of each pod's draft models.
absl::StatusOr<std::vector<std::vector<std::string>>> ParseDrafters(const std::string& text) {
  std::vector<std::vector<std::string>> pods;
  std::vector<std::string> all;
  for (const absl::string_view pod : absl::StrSplit(text, ',')) {
    pods.push_back(SplitModels(std::string(pod.data(), pod.size())));
    all.insert(all.end(), pods.back().begin(), pods.back().end());
    if (pods.back().size() > kMaxDraftModels) {
      return InvalidArgument(absl::StrCat("--drafter: got ", pods.back().size(),
                                          " draft models of one pod, allowed: at most ",
                                          kMaxDraftModels));
    }
    if (pods.back().size() != pods.front().size()) {
      return InvalidArgument(absl::StrCat("--drafter: got ", pods.front().size(), " and ",
                                          pods.back().size(),
                                          " draft models of two pods; want as many for each pod"));
    }
  }
  TANDEM_RETURN_IF_ERROR(ParseList("--drafter", absl::StrJoin(all, ",")).status());
  return pods;
}

std::string WithPort(const std::string& host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string::npos;
  return is_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveHost(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found);
  if (error != 0) return Unavailable(absl::StrCat("dns:", name, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<std::string> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
      char host[NI_MAXHOST];
      if (info->ai_family != family || getnameinfo(info->ai_addr, info->ai_addrlen, host,
                                                   sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) {
        continue;
      }
      addresses.emplace_back(host);
    }
    if (!addresses.empty()) break;
  }
  return addresses;
}

uint32_t NumDraftModels(const std::string& drafters) {
  if (drafters == "none") return 0;
  return static_cast<uint32_t>(SplitModels(drafters.substr(0, drafters.find(','))).size());
}

absl::Status PodDirectory::AddDrafterPorts(const std::string& drafters) {
  const std::vector<std::string> names = SplitModels(drafters);
  if (names.size() > kMaxDraftModels) {
    return InvalidArgument(absl::StrCat("--drafter: got ", names.size(),
                                        " draft models, allowed: at most ", kMaxDraftModels));
  }
  for (const std::string& name : names) {
    if (!name.starts_with(kDns)) {
      return InvalidArgument(absl::StrCat("--drafter: got '", name, "', want dns:", name_,
                                          ":PORT, as --verifier asks for, or none"));
    }
    TANDEM_ASSIGN_OR_RETURN(const Address drafter, ParseName("--drafter", name));
    if (drafter.host() != name_) {
      return InvalidArgument(
          absl::StrCat("--drafter: asks for ", drafter.host(), ", --verifier for ", name_,
                       "; both must name the same pods: the workers of a pod share a host"));
    }
    if (std::find(drafter_ports_.begin(), drafter_ports_.end(), drafter.port()) !=
        drafter_ports_.end()) {
      return InvalidArgument(absl::StrCat("--drafter: ", name, " is given twice"));
    }
    drafter_ports_.push_back(drafter.port());
  }
  return absl::OkStatus();
}

absl::StatusOr<PodDirectory> PodDirectory::Parse(const std::string& verifiers,
                                                 const std::string& drafters, Resolve resolve) {
  PodDirectory directory;
  const bool has_drafters = drafters != "none";
  if (verifiers.starts_with(kDns)) {
    TANDEM_ASSIGN_OR_RETURN(const Address verifier, ParseName("--verifier", verifiers));
    directory.name_ = verifier.host();
    directory.verifier_port_ = verifier.port();
    directory.resolve_ = std::move(resolve);
    if (!has_drafters) return directory;
    TANDEM_RETURN_IF_ERROR(directory.AddDrafterPorts(drafters));
    return directory;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<std::string> verifier_list,
                          ParseList("--verifier", verifiers));
  std::vector<std::vector<std::string>> drafter_list(verifier_list.size());
  if (has_drafters) {
    TANDEM_ASSIGN_OR_RETURN(drafter_list, ParseDrafters(drafters));
  }
  if (drafter_list.size() != verifier_list.size()) {
    return InvalidArgument(absl::StrCat("--drafter: got ", drafter_list.size(), " addresses for ",
                                        verifier_list.size(),
                                        " verifiers; want one for each, in their order, or none"));
  }
  if (verifier_list.size() > kMaxPods) {
    return InvalidArgument(absl::StrCat("--verifier: got ", verifier_list.size(),
                                        " addresses, allowed: at most ", kMaxPods));
  }
  for (size_t i = 0; i < verifier_list.size(); ++i) {
    directory.fixed_.push_back({verifier_list[i], drafter_list[i]});
  }
  return directory;
}

absl::StatusOr<std::vector<PodSpec>> PodDirectory::Find() const {
  if (is_fixed()) return fixed_;
  TANDEM_ASSIGN_OR_RETURN(std::vector<std::string> hosts, resolve_(name_));
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  if (hosts.empty()) return Unavailable(absl::StrCat("dns:", name_, ": has no address"));
  if (hosts.size() > kMaxPods) {
    return ResourceExhausted(absl::StrCat("dns:", name_, ": has ", hosts.size(),
                                          " addresses, allowed: at most ", kMaxPods));
  }
  std::vector<PodSpec> pods;
  pods.reserve(hosts.size());
  for (const std::string& host : hosts) {
    PodSpec& pod = pods.emplace_back();
    pod.verifier = WithPort(host, verifier_port_);
    for (const uint16_t port : drafter_ports_) pod.drafters.push_back(WithPort(host, port));
  }
  return pods;
}

}  // namespace tandem
