#include "services/router/server/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/status.h>

#include <utility>

namespace tandem {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using reflection_v1::ServerReflectionRequest;
using reflection_v1::ServerReflectionResponse;

void AddFile(const FileDescriptor& file, std::set<std::string>* sent,
             reflection_v1::FileDescriptorResponse* response) {
  if (!sent->insert(file.name()).second) return;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  response->add_file_descriptor_proto(proto.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) AddFile(*file.dependency(i), sent, response);
}

void NotFound(const std::string& what, ServerReflectionResponse* response) {
  response->mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
  response->mutable_error_response()->set_error_message(what + " is not known");
}

// Null stands for a file that does not exist. `what` names it in the answer.
void Answer(const FileDescriptor* file, const std::string& what, std::set<std::string>* sent,
            ServerReflectionResponse* response) {
  if (file == nullptr) return NotFound(what, response);
  // A file that was asked for is sent again.
  sent->erase(file->name());
  AddFile(*file, sent, response->mutable_file_descriptor_response());
}

const FileDescriptor* FileOfExtension(const reflection_v1::ExtensionRequest& request) {
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  const Descriptor* const type = pool->FindMessageTypeByName(request.containing_type());
  if (type == nullptr) return nullptr;
  const FieldDescriptor* const extension =
      pool->FindExtensionByNumber(type, request.extension_number());
  return extension == nullptr ? nullptr : extension->file();
}

void AnswerExtensionNumbers(const std::string& name, ServerReflectionResponse* response) {
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  const Descriptor* const type = pool->FindMessageTypeByName(name);
  if (type == nullptr) return NotFound("the type", response);
  std::vector<const FieldDescriptor*> extensions;
  pool->FindAllExtensions(type, &extensions);
  auto* numbers = response->mutable_all_extension_numbers_response();
  numbers->set_base_type_name(name);
  for (const FieldDescriptor* extension : extensions) {
    numbers->add_extension_number(extension->number());
  }
}

class Reactor final
    : public grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse> {
 public:
  explicit Reactor(const std::vector<std::string>* services) : services_(services) {
    StartRead(&request_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    response_ = Reflect(request_, *services_, &sent_);
    StartWrite(&response_);
  }
  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&request_);
  }
  void OnDone() override { delete this; }

 private:
  const std::vector<std::string>* services_;
  std::set<std::string> sent_;
  ServerReflectionRequest request_;
  ServerReflectionResponse response_;
};

}  // namespace

ServerReflectionResponse Reflect(const ServerReflectionRequest& request,
                                 const std::vector<std::string>& services,
                                 std::set<std::string>* sent) {
  const DescriptorPool* const pool = DescriptorPool::generated_pool();
  ServerReflectionResponse response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case ServerReflectionRequest::kFileByFilename:
      Answer(pool->FindFileByName(request.file_by_filename()), "the file", sent, &response);
      break;
    case ServerReflectionRequest::kFileContainingSymbol:
      Answer(pool->FindFileContainingSymbol(request.file_containing_symbol()), "the symbol", sent,
             &response);
      break;
    case ServerReflectionRequest::kFileContainingExtension:
      Answer(FileOfExtension(request.file_containing_extension()), "the extension", sent,
             &response);
      break;
    case ServerReflectionRequest::kAllExtensionNumbersOfType:
      AnswerExtensionNumbers(request.all_extension_numbers_of_type(), &response);
      break;
    case ServerReflectionRequest::kListServices:
      for (const std::string& name : services) {
        response.mutable_list_services_response()->add_service()->set_name(name);
      }
      break;
    case ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      response.mutable_error_response()->set_error_message("the request asks for nothing");
  }
  return response;
}

grpc::ServerBidiReactor<ServerReflectionRequest, ServerReflectionResponse>*
ReflectionService::ServerReflectionInfo(grpc::CallbackServerContext* /*context*/) {
  return new Reactor(&services_);
}

}  // namespace tandem
