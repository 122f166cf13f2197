// gRPC server reflection v1: clients such as grpcurl ask the server for its proto files.
#ifndef TANDEM_SERVICES_ROUTER_SERVER_REFLECTION_SERVICE_H_
#define TANDEM_SERVICES_ROUTER_SERVER_REFLECTION_SERVICE_H_

#include <set>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"

namespace tandem {

namespace reflection_v1 = ::grpc::reflection::v1;

// Answers one request from the descriptors that are compiled into the program. `services` are the
// names to list. `sent` has the names of the files that the stream had before, and gets those of
// this answer. What does not exist is an ErrorResponse with NOT_FOUND.
reflection_v1::ServerReflectionResponse Reflect(
    const reflection_v1::ServerReflectionRequest& request, const std::vector<std::string>& services,
    std::set<std::string>* sent);

// gRPC's own threads serve this service.
class ReflectionService final : public reflection_v1::ServerReflection::CallbackService {
 public:
  explicit ReflectionService(std::vector<std::string> services) : services_(std::move(services)) {}

  grpc::ServerBidiReactor<reflection_v1::ServerReflectionRequest,
                          reflection_v1::ServerReflectionResponse>*
  ServerReflectionInfo(grpc::CallbackServerContext* context) override;

 private:
  const std::vector<std::string> services_;
};

}  // namespace tandem

#endif  // TANDEM_SERVICES_ROUTER_SERVER_REFLECTION_SERVICE_H_
