#include "services/gateway/http/request_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::gateway {
namespace {

using State = RequestReader::State;

// Puts the bytes in pieces of this size, and returns the bodies of all requests, or the status of
// the fault.
std::vector<std::string> Read(RequestReader& reader, std::string_view bytes, size_t piece) {
  std::vector<std::string> bodies;
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, std::min(piece, reader.free_bytes()));
    if (part.empty()) return {"stuck"};
    bytes.remove_prefix(part.size());
    reader.Put(part);
    for (State state = reader.Parse();; state = reader.Parse()) {
      if (state == State::kFailed) {
        bodies.push_back(std::to_string(reader.fault().status));
        return bodies;
      }
      if (state == State::kWhole) {
        bodies.push_back(reader.Take().body);
      } else if (state != State::kBody || state == reader.Parse()) {
        break;
      }
    }
  }
  return bodies;
}

std::string Post(const std::string& headers, const std::string& body) {
  return "POST /p?q=1 HTTP/1.1\r\nHost: h\r\n" + headers + "\r\n\r\n" + body;
}

constexpr HttpLimits kLimits{
    .header_bytes = 1024, .body_bytes = 100, .all_held_bytes = 150, .share_bytes = 0};

TEST(RequestReaderTest, RequestsAreTheSameInPiecesOfEverySize) {
  const std::string bytes = Post("Content-Length: 3", "one") +
                            Post("Transfer-Encoding: chunked", "2\r\ntw\r\n1\r\no\r\n0\r\n\r\n") +
                            "GET / HTTP/1.1\r\n\r\n" + Post("Content-Length: 5", "three");
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    ByteBudget budget(kLimits.all_held_bytes);
    RequestReader reader(kLimits, &budget);
    EXPECT_EQ(Read(reader, bytes, piece), (std::vector<std::string>{"one", "two", "", "three"}))
        << piece;
    EXPECT_EQ(reader.state(), State::kIdle);
    EXPECT_TRUE(budget.Take(kLimits.all_held_bytes)) << "everything was given back";
  }
}

TEST(RequestReaderTest, TheHeadersAreKnownBeforeTheBody) {
  ByteBudget budget(kLimits.all_held_bytes);
  RequestReader reader(kLimits, &budget);
  reader.Put(
      Post("Content-Type: application/json\r\nAuthorization: Bearer t\r\n"
           "traceparent: x\r\nExpect: 100-continue\r\nContent-Length: 3",
           ""));
  ASSERT_EQ(reader.Parse(), State::kBody);
  EXPECT_EQ(reader.request().method, "POST");
  EXPECT_EQ(reader.request().path, "/p");
  EXPECT_EQ(reader.request().host, "h");
  EXPECT_EQ(reader.request().content_type, "application/json");
  EXPECT_EQ(reader.request().authorization, "Bearer t");
  EXPECT_EQ(reader.request().traceparent, "x");
  EXPECT_TRUE(reader.expects_continue() && reader.keeps_alive() && !reader.speaks_old_http());
}

TEST(RequestReaderTest, LimitsHoldForEveryKindOfBody) {
  const auto status = [](const std::string& bytes, size_t piece) {
    ByteBudget budget(kLimits.all_held_bytes);
    RequestReader reader(kLimits, &budget);
    const auto bodies = Read(reader, bytes, piece);
    return bodies.empty() ? "" : bodies.back();
  };
  std::string chunks;
  for (int i = 0; i < 200; ++i) chunks += "1\r\na\r\n";
  for (const size_t piece : {1, 7, 512}) {
    EXPECT_EQ(status(Post("Content-Length: 101", ""), piece), "413");
    EXPECT_EQ(status(Post("Content-Length: 99999999999999999", ""), piece), "413");
    EXPECT_EQ(status(Post("Transfer-Encoding: chunked", chunks), piece), "413");
    EXPECT_EQ(status(Post("X: " + std::string(2000, 'a'), ""), piece), "431");
    EXPECT_EQ(status("GET /" + std::string(3000, 'a') + " HTTP/1.1\r\n\r\n", piece), "431");
    EXPECT_EQ(status("nonsense\r\n\r\n", piece), "400");
    EXPECT_EQ(status(Post("Content-Length: 3\r\nTransfer-Encoding: chunked", ""), piece), "400");
    EXPECT_EQ(status(Post("Content-Length: 3\r\nContent-Length: 4", ""), piece), "400");
    // A proxy may take these for other bodies than Beast does.
    for (const char* encoding : {"xchunked", "identity", "chunked, identity", "gzip, chunked",
                                 "\"chunked\"", "chunked\r\nTransfer-Encoding: chunked"}) {
      EXPECT_EQ(status(Post("Transfer-Encoding: " + std::string(encoding), "0\r\n\r\n"), piece),
                "400")
          << encoding;
    }
    EXPECT_EQ(status(Post("Host: a\r\nHost: b\r\nContent-Length: 0", ""), piece), "400");
    EXPECT_EQ(status(Post("Transfer-Encoding: chunked",
                          "1;" + std::string(3000, 'x') + "\r\na\r\n0\r\n\r\n"),
                     piece),
              "400");
  }
}

TEST(RequestReaderTest, AHeaderThatBeastCannotHoldIsRefused) {
  HttpLimits limits = kLimits;
  limits.header_bytes = 200'000;
  ByteBudget budget(limits.all_held_bytes);
  RequestReader reader(limits, &budget);
  EXPECT_EQ(Read(reader, Post("X: " + std::string(70'000, 'a'), ""), 4096).back(), "431");
}

TEST(RequestReaderTest, AllBodiesTogetherHaveALimit) {
  ByteBudget budget(kLimits.all_held_bytes);
  RequestReader one(kLimits, &budget);
  EXPECT_TRUE(Read(one, Post("Content-Length: 100", std::string(90, 'a')), 4096).empty());
  {
    RequestReader two(kLimits, &budget);
    EXPECT_EQ(Read(two, Post("Content-Length: 100", std::string(90, 'a')), 50).back(), "503");
  }
  RequestReader three(kLimits, &budget);
  EXPECT_EQ(Read(three, Post("Content-Length: 60", std::string(60, 'a')), 50).size(), 1u);
  EXPECT_EQ(budget.used(), 90u);
  one.GiveUp();
  EXPECT_EQ(budget.used(), 0u);
}

TEST(RequestReaderTest, WhoeverTakesTheLeaseHoldsTheBytes) {
  ByteBudget budget(kLimits.all_held_bytes);
  RequestReader reader(kLimits, &budget);
  reader.Put(Post("Content-Length: 60", std::string(60, 'a')));
  reader.Parse();
  ASSERT_EQ(reader.Parse(), State::kWhole);
  EXPECT_EQ(reader.body_bytes(), 60u);
  {
    const ByteLease lease = reader.TakeLease();
    EXPECT_EQ(reader.Take().body.size(), 60u);
    EXPECT_EQ(budget.used(), 60u);
  }
  EXPECT_EQ(budget.used(), 0u);
}

}  // namespace
}  // namespace tandem::gateway
