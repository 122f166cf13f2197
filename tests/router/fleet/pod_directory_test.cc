#include "services/router/fleet/pod_directory.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/status.h"

namespace tandem {
namespace {

using Hosts = std::vector<std::string>;
using Addresses = absl::StatusOr<Hosts>;

std::string RefusalOf(const std::string& verifiers, const std::string& drafters) {
  const auto directory = PodDirectory::Parse(verifiers, drafters);
  return directory.ok() ? "" : std::string(directory.status().message());
}

TEST(PodDirectoryTest, OneAddressEachIsOnePod) {
  const auto directory = *PodDirectory::Parse("unix:/run/v.sock", "127.0.0.1:7002");
  EXPECT_TRUE(directory.is_fixed());
  EXPECT_EQ(*directory.Find(), (std::vector<PodSpec>{{"unix:/run/v.sock", {"127.0.0.1:7002"}}}));
}

TEST(PodDirectoryTest, ListsArePairedByPlace) {
  const auto directory = *PodDirectory::Parse("127.0.0.1:1,[::1]:2", "127.0.0.1:3,[::1]:4");
  EXPECT_EQ(*directory.Find(),
            (std::vector<PodSpec>{{"127.0.0.1:1", {"127.0.0.1:3"}}, {"[::1]:2", {"[::1]:4"}}}));
  EXPECT_EQ(*PodDirectory::Parse("a:1,b:1", "none")->Find(),
            (std::vector<PodSpec>{{"a:1", {}}, {"b:1", {}}}));
}

TEST(PodDirectoryTest, APodCanHaveSeveralDraftModels) {
  EXPECT_EQ(*PodDirectory::Parse("a:1,b:1", "a:2+a:3,b:2+b:3")->Find(),
            (std::vector<PodSpec>{{"a:1", {"a:2", "a:3"}}, {"b:1", {"b:2", "b:3"}}}));
  const auto found =
      PodDirectory::Parse("dns:pods:1", "dns:pods:2+dns:pods:3",
                          [](const std::string&) -> Addresses { return Hosts{"10.0.0.7"}; })
          ->Find();
  EXPECT_EQ(*found, (std::vector<PodSpec>{{"10.0.0.7:1", {"10.0.0.7:2", "10.0.0.7:3"}}}));
  EXPECT_EQ(*PodDirectory::Parse("a:1", "unix:/srv/c++/d.sock+unix:/srv/a+b/e.sock")->Find(),
            (std::vector<PodSpec>{{"a:1", {"unix:/srv/c++/d.sock", "unix:/srv/a+b/e.sock"}}}))
      << "paths may have the character";
  EXPECT_EQ(NumDraftModels("unix:/srv/c++/d.sock"), 1u);
  EXPECT_EQ(RefusalOf("dns:pods:1", "dns:pods:2+dns:pods:2"),
            "--drafter: dns:pods:2 is given twice");
  EXPECT_EQ(NumDraftModels("none"), 0u);
  EXPECT_EQ(NumDraftModels("a:1,b:1"), 1u);
  EXPECT_EQ(NumDraftModels("a:2+a:3,b:2+b:3"), 2u);
  EXPECT_EQ(RefusalOf("a:1,b:1", "a:2+a:3,b:2"),
            "--drafter: got 2 and 1 draft models of two pods; want as many for each pod");
  EXPECT_EQ(RefusalOf("a:1", "a:2+a:3+a:4+a:5+a:6"),
            "--drafter: got 5 draft models of one pod, allowed: at most 4");
  EXPECT_EQ(RefusalOf("a:1,b:1", "a:2+a:3,b:2+a:3"), "--drafter: a:3 is given twice");
  EXPECT_EQ(RefusalOf("dns:pods:1", "dns:pods:2+a:3"),
            "--drafter: got 'a:3', want dns:pods:PORT, as --verifier asks for, or none");
}

TEST(PodDirectoryTest, AnAddressIsAPod) {
  std::string asked;
  const auto directory = *PodDirectory::Parse("dns:pods:7001", "dns:pods:7002",
                                              [&](const std::string& name) -> Addresses {
                                                asked = name;
                                                return Hosts{"10.0.0.9", "10.0.0.7", "10.0.0.9"};
                                              });
  EXPECT_FALSE(directory.is_fixed());
  EXPECT_EQ(*directory.Find(), (std::vector<PodSpec>{{"10.0.0.7:7001", {"10.0.0.7:7002"}},
                                                     {"10.0.0.9:7001", {"10.0.0.9:7002"}}}));
  EXPECT_EQ(asked, "pods");
}

TEST(PodDirectoryTest, AddressesOfIpv6HaveBrackets) {
  const auto directory = *PodDirectory::Parse(
      "dns:pods:7001", "none", [](const std::string&) -> Addresses { return Hosts{"fd00::1"}; });
  EXPECT_EQ(*directory.Find(), (std::vector<PodSpec>{{"[fd00::1]:7001", {}}}));
}

TEST(PodDirectoryTest, NoAddressIsAnErrorAndNoEmptyList) {
  const auto none = *PodDirectory::Parse("dns:pods:7001", "none",
                                         [](const std::string&) { return Addresses(Hosts()); });
  EXPECT_EQ(none.Find().status().message(), "dns:pods: has no address");
  const auto fails = *PodDirectory::Parse(
      "dns:pods:7001", "none",
      [](const std::string&) -> Addresses { return Unavailable("no answer"); });
  EXPECT_EQ(fails.Find().status().message(), "no answer");
}

TEST(PodDirectoryTest, NoMorePodsThanARouterCanHave) {
  const auto directory =
      *PodDirectory::Parse("dns:pods:7001", "none", [](const std::string&) -> Addresses {
        Hosts all;
        for (size_t i = 0; i <= PodDirectory::kMaxPods; ++i) {
          all.push_back("10.0." + std::to_string(i / 256) + "." + std::to_string(i % 256));
        }
        return all;
      });
  EXPECT_EQ(directory.Find().status().code(), absl::StatusCode::kResourceExhausted);
}

TEST(PodDirectoryTest, SaysWhatIsWrong) {
  EXPECT_EQ(RefusalOf("a:1,b:2", "c:1"),
            "--drafter: got 1 addresses for 2 verifiers; want one for each, in their order, or "
            "none");
  EXPECT_EQ(RefusalOf("a:1,a:1", "none"), "--verifier: a:1 is given twice");
  EXPECT_NE(RefusalOf("a:1,", "none").find("--verifier: address ''"), std::string::npos);
  EXPECT_NE(RefusalOf("dns:pods", "none").find("want dns:NAME:PORT"), std::string::npos);
  EXPECT_NE(RefusalOf("dns:pods:0", "none").find("with a port from 1"), std::string::npos);
  EXPECT_NE(RefusalOf("dns:pods:1", "a:2").find("want dns:pods:PORT"), std::string::npos);
  EXPECT_NE(RefusalOf("dns:pods:1", "dns:others:2").find("share a host"), std::string::npos);
  EXPECT_NE(RefusalOf("a:1,dns:pods:2", "none").find("cannot be in a list"), std::string::npos);
}

TEST(ResolveHostTest, FindsLoopback) {
  EXPECT_EQ(*ResolveHost("127.0.0.1"), std::vector<std::string>{"127.0.0.1"});
  EXPECT_EQ(*ResolveHost("::1"), std::vector<std::string>{"::1"});
  const auto localhost = ResolveHost("localhost");
  ASSERT_TRUE(localhost.ok()) << localhost.status();
  EXPECT_EQ(localhost->front(), "127.0.0.1");
}

}  // namespace
}  // namespace tandem
