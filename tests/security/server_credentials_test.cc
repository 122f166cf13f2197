// Tests a real server over sockets.
#include "common/security/server_credentials.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/security/call_interceptor.h"
#include "common/security/channel_credentials.h"
#include "tandem/v1/generate.grpc.pb.h"
#include "tandem/v1/worker.grpc.pb.h"
#include "tests/security/certificates.h"
#include "tests/support/raw_call.h"
#include "tests/support/temp_dir.h"

namespace tandem::server_credentials_test {
namespace {

using testing::Authority;
using ::testing::HasSubstr;
using testing::Identity;
using testing::WriteFile;

constexpr char kClient[] = "Bearer client-token-0123456789";
constexpr char kInfo[] = "/tandem.v1.Generation/GetServerInfo";

class InfoService final : public v1::Generation::Service {
  grpc::Status GetServerInfo(grpc::ServerContext*, const v1::GetServerInfoRequest*,
                             v1::ServerInfo* info) override {
    info->set_version("seen");
    return grpc::Status::OK;
  }
  grpc::Status Generate(grpc::ServerContext* context, const v1::GenerateRequest*,
                        grpc::ServerWriter<v1::GenerateResponse>* writer) override {
    v1::GenerateResponse response;
    // Without the pause, a stream that its client does not read fills the window of the connection,
    // and then no other call gets an answer there.
    while (!context->IsCancelled() && writer->Write(response)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return grpc::Status::OK;
  }
};

class ServerCredentialsTest : public ::testing::Test {
 protected:
  ~ServerCredentialsTest() override {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
  }

  void Start(std::shared_ptr<TlsFiles> tls, std::shared_ptr<CallGate> gate) {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
    grpc::ServerBuilder builder;
    builder.RegisterService(&service_);
    if (gate != nullptr) {
      InterceptCalls(builder, [gate](std::string_view method, const auto& context) {
        return CheckCall(*gate, method, context);
      });
    }
    StartWith(builder, std::move(tls));
  }

  void StartWith(grpc::ServerBuilder& builder, std::shared_ptr<TlsFiles> tls) {
    builder.AddListeningPort("localhost:0", MakeServerCredentials(std::move(tls)), &port_);
    server_ = builder.BuildAndStart();
    ASSERT_NE(server_, nullptr);
  }

  std::shared_ptr<CallGate> Gate(std::vector<std::string> methods) const {
    WriteFile(dir_ / "tokens", "client client-token-0123456789\n");
    return std::make_shared<CallGate>(CallGate::Methods{std::move(methods), {}},
                                      *TokenFile::Open((dir_ / "tokens").string()));
  }

  TlsPaths Paths(const std::string& who, const Identity& identity, const Authority& trusts) const {
    WriteFile(dir_ / (who + ".ca"), trusts.certificate());
    WriteFile(dir_ / (who + ".key"), identity.key);
    WriteFile(dir_ / (who + ".pem"), identity.certificate);
    return {(dir_ / (who + ".pem")).string(), (dir_ / (who + ".key")).string(),
            (dir_ / (who + ".ca")).string()};
  }

  // Opens a new connection, in plaintext if `tls` is null.
  std::shared_ptr<grpc::Channel> Connect(TlsFiles* tls) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    return grpc::CreateCustomChannel("localhost:" + std::to_string(port_),
                                     MakeChannelCredentials(tls), arguments);
  }
  std::shared_ptr<grpc::Channel> Connect(const TlsPaths& paths) const {
    return Connect(TlsFiles::Open(paths)->get());
  }
  static TlsPaths Trusting(const TlsPaths& paths) { return {"", "", paths.authorities}; }

  // Calls `method` with an empty message.
  static grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                           const std::string& authorization = "", v1::ServerInfo* reply = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    if (!authorization.empty()) context.AddMetadata("authorization", authorization);
    grpc::ByteBuffer response;
    const grpc::Status status = testing::CallRaw(channel, method, &context, &response);
    if (status.ok() && reply != nullptr) {
      grpc::SerializationTraits<v1::ServerInfo>::Deserialize(&response, reply);
    }
    return status;
  }

  const Authority authority_{"authority"};
  const Authority other_authority_{"other authority"};
  testing::TempDir dir_;
  InfoService service_;
  std::unique_ptr<grpc::Server> server_;
  int port_ = 0;
};

// Expects the end of a call that is not allowed. A stream is canceled.
void ExpectRefused(const std::string& method, const grpc::Status& status, grpc::StatusCode code,
                   const std::string& message) {
  const bool is_stream = method.ends_with("/Generate") || method.ends_with("/GenerateMany") ||
                         method.ends_with("/Watch") || method.ends_with("/ServerReflectionInfo");
  if (is_stream && status.error_code() == grpc::StatusCode::CANCELLED) return;
  EXPECT_EQ(status.error_code(), code) << method;
  EXPECT_THAT(status.error_message(), HasSubstr(message)) << method;
}

std::vector<std::string> MethodsOf(const google::protobuf::FileDescriptor& file) {
  std::vector<std::string> methods;
  for (int i = 0; i < file.service_count(); ++i) {
    const google::protobuf::ServiceDescriptor& service = *file.service(i);
    for (int j = 0; j < service.method_count(); ++j) {
      methods.push_back("/" + service.full_name() + "/" + service.method(j)->name());
    }
  }
  return methods;
}

// This holds in every process with such credentials, also for gRPC's own services.
TEST_F(ServerCredentialsTest, NothingIsServedWithoutAToken) {
  std::vector<std::string> methods = MethodsOf(*v1::GenerateRequest::descriptor()->file());
  ASSERT_EQ(methods.size(), 5u);
  for (const char* more : {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                           "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    methods.emplace_back(more);
  }
  Start(nullptr, Gate(methods));
  const auto channel = Connect(nullptr);
  for (const char* token : {"", "Bearer client-token-0123456780", "client-token-0123456789"}) {
    for (const std::string& method : methods) {
      v1::ServerInfo reply;
      ExpectRefused(method, Call(channel, method, token, &reply), grpc::StatusCode::UNAUTHENTICATED,
                    "Bearer TOKEN");
      EXPECT_EQ(reply.version(), "") << method;
    }
    for (const char* unknown : {"/no.Such/Method", "/x", "/tandem.v1.VerifierWorker/Session"}) {
      EXPECT_EQ(Call(channel, unknown, token).error_code(), grpc::StatusCode::UNAUTHENTICATED);
    }
  }
  v1::ServerInfo info;
  EXPECT_TRUE(Call(channel, kInfo, kClient, &info).ok());
  EXPECT_EQ(info.version(), "seen");
  EXPECT_EQ(Call(channel, "/x", kClient).error_code(), grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(ServerCredentialsTest, ARegisteredMethodThatIsNotAllowedIsDenied) {
  Start(nullptr, Gate({kInfo}));
  const auto channel = Connect(nullptr);
  EXPECT_TRUE(Call(channel, kInfo, kClient).ok());
  for (const char* method : {"/tandem.v1.Generation/Generate", "/grpc.health.v1.Health/Check",
                             "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"}) {
    ExpectRefused(method, Call(channel, method, kClient), grpc::StatusCode::UNIMPLEMENTED,
                  "this server has no such method");
  }
}

TEST_F(ServerCredentialsTest, AClientsCertificateMustHaveTheRequestedName) {
  grpc::ServerBuilder builder;
  builder.RegisterService(&service_);
  InterceptCalls(builder, [](std::string_view, const auto& context) {
    return CheckClientName("the-routers", context);
  });
  StartWith(builder, *TlsFiles::Open(Paths("server", authority_.Issue("localhost"), authority_)));
  EXPECT_TRUE(Call(Connect(Paths("a", authority_.Issue("the-routers"), authority_)), kInfo).ok());
  for (const char* name : {"the-router", "the-routers.example", "somebody"}) {
    const grpc::Status status =
        Call(Connect(Paths("b", authority_.Issue(name), authority_)), kInfo);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED) << name;
    EXPECT_THAT(status.error_message(), HasSubstr("--client-name the-routers"));
  }
}

TEST_F(ServerCredentialsTest, AClientThatTrustsTheAuthorityConnects) {
  const TlsPaths paths = Paths("server", authority_.Issue("localhost"), authority_);
  Start(*TlsFiles::Open({paths.certificate, paths.key, ""}), Gate({kInfo}));
  EXPECT_TRUE(Call(Connect(Trusting(paths)), kInfo, kClient).ok());
  EXPECT_EQ(Call(Connect(Trusting(paths)), kInfo).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Call(Connect(nullptr), kInfo, kClient).error_code(), grpc::StatusCode::UNAVAILABLE);
  const TlsPaths others = Paths("other", other_authority_.Issue("x"), other_authority_);
  EXPECT_EQ(Call(Connect(Trusting(others)), kInfo, kClient).error_code(),
            grpc::StatusCode::UNAVAILABLE);
}

TEST_F(ServerCredentialsTest, AServerWithAnExpiredOrForeignCertificateIsRefused) {
  const TlsPaths paths = Paths("server", authority_.Issue("localhost", {-9, -2}), authority_);
  Start(*TlsFiles::Open({paths.certificate, paths.key, ""}), nullptr);
  EXPECT_EQ(Call(Connect(Trusting(paths)), kInfo).error_code(), grpc::StatusCode::UNAVAILABLE);
  Paths("server", authority_.Issue("elsewhere.example"), authority_);
  EXPECT_EQ(Call(Connect(Trusting(paths)), kInfo).error_code(), grpc::StatusCode::UNAVAILABLE);
  Paths("server", authority_.Issue("localhost"), authority_);
  EXPECT_TRUE(Call(Connect(Trusting(paths)), kInfo).ok());
}

TEST_F(ServerCredentialsTest, MutualTlsNeedsAClientCertificateOfTheAuthority) {
  Start(*TlsFiles::Open(Paths("server", authority_.Issue("localhost"), authority_)), nullptr);
  const TlsPaths good = Paths("good", authority_.Issue("client"), authority_);
  EXPECT_TRUE(Call(Connect(good), kInfo).ok());
  EXPECT_FALSE(Call(Connect(Trusting(good)), kInfo).ok()) << "without a certificate";
  EXPECT_FALSE(Call(Connect(Paths("x", other_authority_.Issue("client"), authority_)), kInfo).ok());
  EXPECT_FALSE(
      Call(Connect(Paths("y", authority_.Issue("client", {-9, -2}), authority_)), kInfo).ok());
}

TEST_F(ServerCredentialsTest, NewConnectionsGetNewFilesAndOldOnesStay) {
  const TlsPaths paths = Paths("server", authority_.Issue("localhost"), authority_);
  Start(*TlsFiles::Open({paths.certificate, paths.key, ""}), nullptr);
  const TlsPaths first = Paths("first", authority_.Issue("x"), authority_);
  const TlsPaths second = Paths("second", other_authority_.Issue("x"), other_authority_);
  const auto old = Connect(Trusting(first));
  const auto stub = v1::Generation::NewStub(old);
  grpc::ClientContext context;
  const auto stream = stub->Generate(&context, v1::GenerateRequest());
  v1::GenerateResponse response;
  ASSERT_TRUE(stream->Read(&response));
  EXPECT_FALSE(Call(Connect(Trusting(second)), kInfo).ok());

  Paths("server", other_authority_.Issue("localhost"), other_authority_);
  EXPECT_TRUE(Call(Connect(Trusting(second)), kInfo).ok());
  EXPECT_FALSE(Call(Connect(Trusting(first)), kInfo).ok());
  EXPECT_TRUE(Call(old, kInfo).ok()) << "a connection that is open";
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(stream->Read(&response)) << "and its streams";
  context.TryCancel();
  stream->Finish();

  // After one of two new files, or an invalid file, the earlier contents stay in use.
  WriteFile(paths.certificate, authority_.Issue("localhost").certificate);
  EXPECT_TRUE(Call(Connect(Trusting(second)), kInfo).ok());
  WriteFile(paths.certificate, "nonsense");
  EXPECT_TRUE(Call(Connect(Trusting(second)), kInfo).ok());
}

// The authorities for clients are also read again.
TEST_F(ServerCredentialsTest, ClientAuthoritiesAreReadAgain) {
  const TlsPaths paths = Paths("server", authority_.Issue("localhost"), authority_);
  Start(*TlsFiles::Open(paths), nullptr);
  const TlsPaths first = Paths("first", authority_.Issue("x"), authority_);
  const TlsPaths second = Paths("second", other_authority_.Issue("x"), authority_);
  EXPECT_TRUE(Call(Connect(first), kInfo).ok());
  EXPECT_FALSE(Call(Connect(second), kInfo).ok());
  WriteFile(paths.authorities, other_authority_.certificate());
  EXPECT_FALSE(Call(Connect(first), kInfo).ok());
  EXPECT_TRUE(Call(Connect(second), kInfo).ok());
}

}  // namespace
}  // namespace tandem::server_credentials_test
