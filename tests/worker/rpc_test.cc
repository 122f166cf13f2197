// common/rpc: addresses, status codes, sampling parameters on the wire.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "common/ring/unique_fd.h"
#include "common/rpc/address.h"
#include "common/rpc/grpc_status.h"
#include "common/rpc/host_identity.h"
#include "common/rpc/slot_open.h"
#include "common/rpc/write_queue.h"
#include "services/worker/wire.h"
#include "tests/support/temp_dir.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

UniqueFd BindSocket(const std::filesystem::path& path, bool listening) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  if (listening) {
    EXPECT_EQ(listen(fd.get(), 1), 0);
  }
  return fd;
}

TEST(AddressTest, ReadsWhatPeopleWrite) {
  const Address unix_address = *Address::Parse("unix:/run/a.sock");
  EXPECT_TRUE(unix_address.is_unix());
  EXPECT_TRUE(unix_address.is_loopback());
  EXPECT_EQ(unix_address.path(), "/run/a.sock");
  EXPECT_EQ(unix_address.ToString(1), "unix:/run/a.sock");
  EXPECT_EQ(Address::Parse("unix:///run/a.sock")->path(), "/run/a.sock");
  EXPECT_EQ(Address::Parse("unix:a.sock")->path(), "a.sock");
  const Address v4 = *Address::Parse("127.0.0.1:0");
  EXPECT_EQ(v4.port(), 0);
  EXPECT_EQ(v4.ToString(4321), "127.0.0.1:4321");
  const Address v6 = *Address::Parse("[::1]:80");
  EXPECT_EQ(v6.host(), "::1");
  EXPECT_TRUE(v6.is_loopback());
  EXPECT_EQ(v6.ToGrpc(), "[::1]:80");
}

TEST(AddressTest, RefusesWhatIsNone) {
  for (const char* text : {"", "host", ":80", "host:", "host:x", "host:65536", "host:-1", "host:1x",
                           "unix:", "::1:80"}) {
    EXPECT_EQ(Address::Parse(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
  EXPECT_FALSE(Address::Parse("unix:/" + std::string(107, 'x')).ok());
  EXPECT_TRUE(Address::Parse("unix:/" + std::string(106, 'x')).ok());
}

TEST(AddressTest, OnlyLoopbackIsBoundUnlessInsecure) {
  for (const char* text : {"unix:x", "localhost:1", "127.0.0.1:1", "127.9.9.9:1", "[::1]:1"}) {
    EXPECT_TRUE(CheckBindIsLocal(*Address::Parse(text), false).ok()) << text;
  }
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "128.0.0.1:1"}) {
    EXPECT_FALSE(CheckBindIsLocal(*Address::Parse(text), false).ok()) << text;
    EXPECT_TRUE(CheckBindIsLocal(*Address::Parse(text), true).ok()) << text;
  }
}

TEST(SocketPathTest, RemovesASocketThatNobodyListensOn) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.sock").string());
  EXPECT_TRUE(PrepareSocketPath(address).ok()) << "nothing is there";
  BindSocket(address.path(), false);
  EXPECT_TRUE(PrepareSocketPath(address).ok());
  EXPECT_FALSE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, LeavesASocketThatIsListenedOn) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.sock").string());
  const UniqueFd listener = BindSocket(address.path(), true);
  EXPECT_EQ(PrepareSocketPath(address).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_TRUE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, LeavesOtherFiles) {
  const testing::TempDir dir;
  const Address address = *Address::Parse("unix:" + (dir / "a.txt").string());
  std::ofstream(address.path()) << "text";
  EXPECT_EQ(PrepareSocketPath(address).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::exists(address.path()));
}

TEST(SocketPathTest, MakesTheFolderForTheUserAlone) {
  const testing::TempDir dir;
  ASSERT_TRUE(PrepareSocketPath(*Address::Parse("unix:" + (dir / "new/a.sock").string())).ok());
  struct stat info {};
  ASSERT_EQ(stat((dir / "new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700u);
}

TEST(GrpcStatusTest, CodesAndMessagesSurviveTheWire) {
  const absl::Status status = absl::ResourceExhaustedError("full");
  EXPECT_EQ(ToGrpcStatus(status).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ToAbslStatus(ToGrpcStatus(status)), status);
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(ToAbslStatus(grpc::Status::OK).ok());
  EXPECT_EQ(ToWorkerCode(absl::StatusCode::kAborted), v1::WORKER_CODE_ABORTED);
  EXPECT_EQ(ToWorkerCode(absl::StatusCode::kUnknown), v1::WORKER_CODE_INTERNAL);
  EXPECT_TRUE(absl::IsAborted(ToAbslStatus(v1::WORKER_CODE_ABORTED, "x")));
}

TEST(HostIdentityTest, IsTheSameAgain) {
  EXPECT_FALSE(BootId().empty());
  EXPECT_EQ(BootId(), BootId());
  EXPECT_THAT(PidNamespace(), HasSubstr("pid:"));
}

SamplingParams Unusual() {
  SamplingParams params;
  params.temperature = 0.7f;
  params.top_p = 0.9f;
  params.top_k = 40;
  params.min_p = 0.05f;
  params.repetition_penalty = 1.1f;
  params.presence_penalty = -0.5f;
  params.frequency_penalty = 0.25f;
  params.logit_bias = {{2, -100.0f}, {7, 1.5f}};
  params.min_tokens = 3;
  params.held_back_token_ids = {15, 1};
  params.seed = 0xFFFFFFFFFFFFFFFFULL;
  params.reproducible = true;
  params.lenience = 0.5f;
  params.num_logprobs = 0;
  return params;
}

TEST(SlotOpenTest, ParametersSurviveTheWire) {
  const SamplingParams sent = Unusual();
  v1::SlotOpen wire;
  ASSERT_TRUE(wire.ParseFromString(ToSlotOpen(sent, 12).SerializeAsString()));
  EXPECT_EQ(wire.prompt_length(), 12);
  const SamplingParams params = *FromSlotOpen(wire, 16);
  EXPECT_EQ(params.temperature, sent.temperature);
  EXPECT_EQ(params.top_p, sent.top_p);
  EXPECT_EQ(params.top_k, sent.top_k);
  EXPECT_EQ(params.min_p, sent.min_p);
  EXPECT_EQ(params.repetition_penalty, sent.repetition_penalty);
  EXPECT_EQ(params.presence_penalty, sent.presence_penalty);
  EXPECT_EQ(params.frequency_penalty, sent.frequency_penalty);
  EXPECT_EQ(params.logit_bias, sent.logit_bias);
  EXPECT_EQ(params.min_tokens, sent.min_tokens);
  EXPECT_EQ(params.held_back_token_ids, sent.held_back_token_ids);
  EXPECT_EQ(params.seed, sent.seed);
  EXPECT_EQ(params.reproducible, sent.reproducible);
  EXPECT_EQ(params.lenience, sent.lenience);
  EXPECT_EQ(params.num_logprobs, sent.num_logprobs);
  SamplingParams none = sent;
  none.num_logprobs = -1;
  EXPECT_EQ(FromSlotOpen(ToSlotOpen(none, 0), 16)->num_logprobs, -1);
  EXPECT_FALSE(params.audit);
  SamplingParams audited;
  audited.audit = true;
  EXPECT_TRUE(FromSlotOpen(ToSlotOpen(audited, 0), 16)->audit);
}

TEST(SlotOpenTest, EveryBadNumberIsNamed) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const auto expect_refused = [](const char* field, auto change) {
    SamplingParams params = Unusual();
    change(params);
    const auto result = FromSlotOpen(ToSlotOpen(params, 0), 16);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr(field));
  };
  for (float bad : {kNaN, kInfinity, -kInfinity, -1.0f}) {
    expect_refused("temperature", [&](SamplingParams& p) { p.temperature = bad; });
    expect_refused("top_p", [&](SamplingParams& p) { p.top_p = bad; });
    expect_refused("min_p", [&](SamplingParams& p) { p.min_p = bad; });
    expect_refused("repetition_penalty", [&](SamplingParams& p) { p.repetition_penalty = bad; });
    expect_refused("lenience", [&](SamplingParams& p) { p.lenience = bad; });
  }
  for (float bad : {kNaN, kInfinity, -kInfinity}) {
    expect_refused("presence_penalty", [&](SamplingParams& p) { p.presence_penalty = bad; });
    expect_refused("frequency_penalty", [&](SamplingParams& p) { p.frequency_penalty = bad; });
    expect_refused("logit_bias", [&](SamplingParams& p) { p.logit_bias = {{1, bad}}; });
  }
  expect_refused("top_p", [](SamplingParams& p) { p.top_p = 0; });
  expect_refused("lenience", [](SamplingParams& p) { p.lenience = 0; });
  expect_refused("min_p", [](SamplingParams& p) { p.min_p = 1.5f; });
  expect_refused("logit_bias", [](SamplingParams& p) { p.logit_bias = {{16, 1.0f}}; });
  expect_refused("logit_bias", [](SamplingParams& p) { p.logit_bias = {{-1, 1.0f}}; });
  expect_refused("stop_token_ids", [](SamplingParams& p) { p.held_back_token_ids = {16}; });
  expect_refused("min_tokens", [](SamplingParams& p) { p.min_tokens = -1; });
  expect_refused("logprobs", [](SamplingParams& p) { p.num_logprobs = 21; });
  expect_refused("audit", [](SamplingParams& p) { p.audit = true; });  // lenience is not 1
}

TEST(WriteQueueTest, OneMessageIsUnderWayAtATime) {
  WriteQueue<int> queue;
  EXPECT_EQ(queue.Begin(), nullptr);
  queue.Push(1);
  queue.Push(2);
  queue.Push(3);
  EXPECT_EQ(*queue.Begin(), 1);
  EXPECT_EQ(queue.Begin(), nullptr);
  queue.End();
  EXPECT_EQ(*queue.Begin(), 2);
  queue.Clear();
  EXPECT_EQ(queue.size(), 1) << "what is under way stays";
  queue.End();
  EXPECT_EQ(queue.Begin(), nullptr);
}

TEST(WireTest, OnlyChainsAreJudged) {
  EXPECT_TRUE(CheckChain({}, 3).ok());
  EXPECT_TRUE(CheckChain(std::vector<int32_t>{-1, 0, 1}, 3).ok());
  for (const std::vector<int32_t>& parents : {std::vector<int32_t>{-1, 0},
                                              {-1, 0, 0},
                                              {-1, -1, 1},
                                              {0, 1, 2},
                                              {-1, 0, 5},
                                              {-1, 0, 1, 2}}) {
    const absl::Status status = CheckChain(parents, 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("parents"));
  }
}

}  // namespace
}  // namespace tandem
