#include "common/admin/admin_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/admin/connection_places.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// One connection to the server.
class Client {
 public:
  explicit Client(const AdminServer& server) {
    const Address address = *Address::Parse(server.address());
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(address.port());
    inet_pton(AF_INET, address.host().c_str(), &to.sin_addr);
    fd_ = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) {
      throw std::runtime_error("cannot connect");
    }
  }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Client() { close(fd_); }

  void Send(const std::string& text) const {
    ASSERT_EQ(send(fd_, text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
  }
  // Reads until `end` arrives, the server closes the connection, or ten seconds pass without data.
  std::string Read(const std::string& end) const {
    std::string text;
    char piece[4096];
    while (!text.ends_with(end) || end.empty()) {
      pollfd waiting{.fd = fd_, .events = POLLIN, .revents = 0};
      if (poll(&waiting, 1, 10000) != 1) return text + "<nothing more>";
      const ssize_t size = recv(fd_, piece, sizeof(piece), 0);
      if (size <= 0) return text + "<closed>";
      text.append(piece, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int fd_ = -1;
};

std::unique_ptr<AdminServer> StartServer(const AdminLimits& limits = {},
                                         const ServerSecurity& security = {}) {
  AdminRoutes routes;
  routes["/metrics"] = [](const std::string&) { return AdminResponse{.body = "one 1\n"}; };
  routes["/readyz"] = [](const std::string&) {
    return AdminResponse{.body = "not ready\n", .status = 503};
  };
  routes["/page"] = [](const std::string&) {
    return AdminResponse{.body = "<p>\n", .content_type = "text/html; charset=utf-8"};
  };
  routes["/echo"] = [](const std::string& query) { return AdminResponse{.body = query}; };
  routes["/broken"] = [](const std::string&) -> AdminResponse {
    throw std::runtime_error("secret path");
  };
  routes["/healthz"] = [](const std::string&) { return AdminResponse{.body = "ok\n"}; };
  auto server =
      AdminServer::Start(*Address::Parse("127.0.0.1:0"), std::move(routes), limits, security);
  return *std::move(server);
}

std::string Ask(const AdminServer& server, const std::string& request) {
  const Client client(server);
  client.Send(request);
  return client.Read("");
}

std::string Get(const std::string& path) {
  return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
}

TEST(AdminServerTest, ARouteAnswers) {
  const auto server = StartServer();
  const std::string metrics = Ask(*server, Get("/metrics"));
  EXPECT_THAT(metrics, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Content-Type: text/plain; charset=utf-8\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(metrics, HasSubstr("Cache-Control: no-store\r\n"));
  EXPECT_THAT(metrics, EndsWith("\r\n\r\none 1\n<closed>"));
  EXPECT_THAT(Ask(*server, Get("/metrics?name=x")), EndsWith("one 1\n<closed>"));
  EXPECT_THAT(Ask(*server, Get("/echo?a=b?c")), EndsWith("\r\n\r\na=b?c<closed>"));
  EXPECT_THAT(Ask(*server, Get("/echo")), EndsWith("\r\n\r\n<closed>"));
  EXPECT_THAT(Ask(*server, Get("/readyz")), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask(*server, Get("/page")), HasSubstr("Content-Type: text/html; charset=utf-8"));
}

TEST(AdminServerTest, AnythingElseIsRefused) {
  const auto server = StartServer();
  const std::string missing = Ask(*server, Get("/secrets"));
  EXPECT_THAT(missing, StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(missing, HasSubstr("/broken, /echo, /healthz, /metrics, /page, /readyz"));
  for (const char* path : {"/", "/metrics/", "//metrics", "/../metrics", "*"}) {
    EXPECT_THAT(Ask(*server, Get(path)), StartsWith("HTTP/1.1 404 ")) << path;
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "BREW"}) {
    const std::string answer =
        Ask(*server, std::string(method) +
                         " /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 405 ")) << method;
    EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n")) << method;
  }
}

// Otherwise a page of another site could read this server through a name of its own that leads
// here.
TEST(AdminServerTest, ALoopbackServerAnswersOnlyToItsOwnNames) {
  const auto server = StartServer();
  const auto ask = [&](const std::string& host) {
    return Ask(*server, "GET /metrics HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n");
  };
  for (const char* good : {"127.0.0.1", "127.0.0.1:9464", "localhost:1", "[::1]:80", "LOCALHOST"}) {
    EXPECT_THAT(ask(good), StartsWith("HTTP/1.1 200 ")) << good;
  }
  for (const char* bad :
       {"evil.example", "evil.example:9464", "127.0.0.1.evil.example", "", "localhost.evil"}) {
    EXPECT_THAT(ask(bad), StartsWith("HTTP/1.1 421 ")) << bad;
  }
}

// tests/system/test_security.py asks for every page, also over TLS.
TEST(AdminServerTest, WithTokensOnlyProbesNeedNoToken) {
  const testing::TempDir dir;
  std::ofstream(dir / "tokens") << "client client-0123456789\nadmin admin-0123456789\n";
  ServerSecurity security;
  security.tokens = *TokenFile::Open((dir / "tokens").string());
  const auto server = StartServer({}, security);
  const auto ask = [&](const std::string& request, const std::string& authorization) {
    return Ask(*server,
               request + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" +
                   (authorization.empty() ? "" : "Authorization: " + authorization + "\r\n") +
                   "\r\n");
  };
  EXPECT_THAT(ask("GET /healthz", ""), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(ask("GET /readyz", ""), StartsWith("HTTP/1.1 503 "));
  for (const char* request :
       {"GET /metrics", "GET /none", "POST /healthz", "GET /healthz/", "GET *"}) {
    const std::string answer = ask(request, "");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 401 ")) << request;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Basic realm=\"tandem\"")) << request;
    EXPECT_THAT(answer, HasSubstr("WWW-Authenticate: Bearer realm=\"tandem\"")) << request;
    EXPECT_THAT(answer, Not(HasSubstr("/broken"))) << request;
    EXPECT_THAT(ask(request, "Bearer client-0123456789"), StartsWith("HTTP/1.1 403 ")) << request;
  }
  EXPECT_THAT(ask("GET /metrics", "Bearer admin-0123456789"), EndsWith("one 1\n<closed>"));
  EXPECT_THAT(ask("GET /none", "Bearer admin-0123456789"), StartsWith("HTTP/1.1 404 "));
  // This is somebody:admin-0123456789.
  EXPECT_THAT(ask("GET /metrics", "Basic c29tZWJvZHk6YWRtaW4tMDEyMzQ1Njc4OQ=="),
              EndsWith("one 1\n<closed>"));
}

TEST(AdminServerTest, HeadHasNoBody) {
  const auto server = StartServer();
  const std::string answer =
      Ask(*server, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Length: 6\r\n"));
  EXPECT_THAT(answer, EndsWith("\r\n\r\n<closed>"));
}

TEST(AdminServerTest, AFailingRouteDoesNotSayWhy) {
  const auto server = StartServer();
  const std::string answer = Ask(*server, Get("/broken"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(answer, Not(HasSubstr("secret")));
  EXPECT_THAT(Ask(*server, Get("/metrics")), EndsWith("one 1\n<closed>"));
}

TEST(AdminServerTest, AConnectionIsUsedAgainButNotAfterABody) {
  const auto server = StartServer();
  const Client client(*server);
  for (int i = 0; i < 3; ++i) {
    client.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_THAT(client.Read("one 1\n"), EndsWith("\r\n\r\none 1\n"));
  }
  client.Send(
      "GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40\r\n\r\nGET /metrics "
      "HTTP/1.1");
  EXPECT_THAT(client.Read(""), EndsWith("one 1\n<closed>"));
  // HTTP/1.0 closes the connection.
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.0\r\n\r\n"), EndsWith("one 1\n<closed>"));
}

TEST(AdminServerTest, AConnectionWithoutHttpIsClosed) {
  const auto server = StartServer();
  EXPECT_THAT(Ask(*server, std::string("\x16\x03\x01\x02\x00 hello\r\n\r\n", 16)),
              EndsWith("<closed>"));
  EXPECT_THAT(Ask(*server, "GET /metrics HTTP/1.1\r\nX: " + std::string(9000, 'x')),
              EndsWith("<closed>"));
  EXPECT_THAT(Ask(*server, Get("/metrics")), EndsWith("one 1\n<closed>"));
}

constexpr char kGetAndStay[] = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(AdminServerTest, ANewConnectionClosesTheOneThatHasWaitedLongest) {
  const auto server = StartServer({.connections = 3});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(*server);
    clients.back().Send(kGetAndStay);
    EXPECT_THAT(clients.back().Read("one 1\n"), EndsWith("one 1\n"));
  }
  // The first connection asks again. Now the second one has waited longest.
  clients[0].Send(kGetAndStay);
  EXPECT_THAT(clients[0].Read("one 1\n"), EndsWith("one 1\n"));
  const Client late(*server);
  late.Send(kGetAndStay);
  EXPECT_THAT(late.Read("one 1\n"), EndsWith("one 1\n"));
  EXPECT_EQ(clients[1].Read(""), "<closed>");
  for (const Client* client :
       std::initializer_list<const Client*>{&clients[0], &clients[2], &late}) {
    client->Send(kGetAndStay);
    EXPECT_THAT(client->Read("one 1\n"), EndsWith("one 1\n"));
  }
}

TEST(AdminServerTest, SilentConnectionsLockNobodyOut) {
  const auto server = StartServer({.connections = 4});
  std::vector<Client> silent;
  for (int i = 0; i < 20; ++i) {
    silent.emplace_back(*server);
    if (i % 2 == 0) silent.back().Send("GET /metr");
  }
  for (int i = 0; i < 20; ++i) {
    EXPECT_THAT(Ask(*server, Get("/healthz")), EndsWith("ok\n<closed>")) << i;
  }
  EXPECT_EQ(silent.front().Read(""), "<closed>");
}

TEST(ConnectionPlacesTest, TheConnectionThatWaitedLongestGivesWay) {
  ConnectionPlaces places(3, 3);
  const auto first = places.Take("");
  const auto second = places.Take("");
  EXPECT_TRUE(places.RoomFor("").is_there);
  EXPECT_EQ(places.RoomFor("").gives_way, std::nullopt);
  const auto third = places.Take("");
  EXPECT_EQ(places.RoomFor("").gives_way, first);
  places.IsAnswered(first);
  EXPECT_EQ(places.RoomFor("").gives_way, second);
  places.Waits(first);
  EXPECT_EQ(places.RoomFor("").gives_way, second);
  places.IsAnswered(second);
  EXPECT_EQ(places.RoomFor("").gives_way, third);
  places.IsAnswered(third);
  EXPECT_EQ(places.RoomFor("").gives_way, first) << "its wait began again, and continues";
}

TEST(ConnectionPlacesTest, AConnectionThatIsBeingAnsweredStays) {
  ConnectionPlaces places(2, 2);
  const auto first = places.Take("");
  places.IsAnswered(first);
  places.IsAnswered(places.Take(""));
  EXPECT_FALSE(places.RoomFor("").is_there);
  places.Leave(first);
  places.Leave(first);
  places.Waits(first);  // the connection has left its place
  EXPECT_TRUE(places.RoomFor("").is_there);
  EXPECT_EQ(places.RoomFor("").gives_way, std::nullopt);
}

TEST(ConnectionPlacesTest, APeerHasFewPlacesAndThisMachineHasAllPlaces) {
  ConnectionPlaces places(5, 2);
  const auto first = places.Take("192.0.2.1");
  const auto other = places.Take("192.0.2.2");
  const auto second = places.Take("192.0.2.1");
  EXPECT_EQ(places.RoomFor("192.0.2.1").gives_way, first);
  EXPECT_EQ(places.RoomFor("192.0.2.2").gives_way, std::nullopt);
  EXPECT_TRUE(places.RoomFor("192.0.2.2").is_there);
  places.IsAnswered(first);
  places.IsAnswered(second);
  EXPECT_FALSE(places.RoomFor("192.0.2.1").is_there) << "a peer cannot take another peer's place";
  places.Take("");
  EXPECT_EQ(places.RoomFor("").gives_way, std::nullopt);
  places.Take("");
  EXPECT_EQ(places.RoomFor("").gives_way, other) << "all are taken";
}

TEST(AdminServerTest, SlowConnectionsAreClosed) {
  const auto server = StartServer({.request_seconds = 1, .idle_seconds = 0.5});
  const Client silent(*server);
  const Client half(*server);
  half.Send("GET /metr");
  const Client idle(*server);
  idle.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(silent.Read(""), "<closed>");
  EXPECT_EQ(half.Read(""), "<closed>");
  EXPECT_THAT(idle.Read(""), EndsWith("one 1\n<closed>"));
}

TEST(AdminServerTest, TheServerEndsWhileConnectionsAreOpen) {
  auto server = StartServer();
  const Client client(*server);
  client.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  client.Read("one 1\n");
  server.reset();
  EXPECT_EQ(client.Read(""), "<closed>");
}

TEST(AdminServerTest, AnAddressThatCannotBeBoundIsAnError) {
  const auto server = StartServer();
  const auto taken = AdminServer::Start(*Address::Parse(server->address()), {});
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kUnavailable) << taken.status();
  EXPECT_THAT(taken.status().message(), HasSubstr(server->address()));
  EXPECT_EQ(AdminServer::Start(*Address::Parse("unix:/tmp/x.sock"), {}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem
