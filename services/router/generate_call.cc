#include "services/router/generate_call.h"

#include <string>
#include <utility>

#include "common/rpc/grpc_status.h"

namespace tandem {

void GenerateCall::WaitForClient(v1::Generation::AsyncService* service,
                                 grpc::ServerCompletionQueue* queue) {
  // gRPC gives this tag back only if the call opens.
  context_.AsyncNotifyWhenDone(done_tag_.get());
  under_way_ = 1;
  service->RequestGenerate(&context_, &request_, &writer_, queue, queue, open_tag_.get());
}

void GenerateCall::OnOpened(bool ok) {
  --under_way_;
  if (!ok) {
    finishing_ = true;
    return CloseIfQuiet();
  }
  opened_ = true;
  ++under_way_;  // done_tag_
  owner_->OnOpened(*this);
}

std::string GenerateCall::tenant() const {
  const auto found = context_.client_metadata().find("tandem-tenant");
  if (found == context_.client_metadata().end()) return "";
  return std::string(found->second.data(), found->second.size());
}

bool GenerateCall::Write(v1::GenerateResponse response) {
  if (status_.has_value()) return true;
  buffered_bytes_ += response.ByteSizeLong();
  if (buffered_bytes_ > kMaxBufferedBytes) {
    queue_.Clear();
    return false;
  }
  queue_.Push(std::move(response));
  WriteNext();
  return true;
}

void GenerateCall::Finish(const absl::Status& status, int emitted_tokens, int retry_milliseconds) {
  if (status_.has_value()) return;
  status_ = ToGrpcStatus(status);
  if (!status.ok()) {
    context_.AddTrailingMetadata("tandem-emitted-tokens", std::to_string(emitted_tokens));
  }
  if (retry_milliseconds > 0) {
    context_.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(retry_milliseconds));
  }
  WriteNext();
}

void GenerateCall::WriteNext() {
  if (finishing_) return;
  if (const v1::GenerateResponse* response = queue_.Begin(); response != nullptr) {
    buffered_bytes_ -= response->ByteSizeLong();
    num_sent_tokens_ += response->token_ids_size();
    ++under_way_;
    writer_.Write(*response, write_tag_.get());
  } else if (status_.has_value() && queue_.size() == 0) {
    finishing_ = true;
    ++under_way_;
    writer_.Finish(*status_, finish_tag_.get());
  }
}

void GenerateCall::OnWritten(bool ok) {
  --under_way_;
  queue_.End();
  if (!ok) queue_.Clear();  // the call is over: done_tag_ says so
  WriteNext();
  CloseIfQuiet();
}

void GenerateCall::OnFinished(bool /*ok*/) {
  --under_way_;
  CloseIfQuiet();
}

void GenerateCall::OnDone(bool /*ok*/) {
  --under_way_;
  if (!status_.has_value()) {
    status_ = grpc::Status::CANCELLED;
    owner_->OnCancelled(*this);
  }
  queue_.Clear();
  WriteNext();
  CloseIfQuiet();
}

void GenerateCall::CloseIfQuiet() {
  if (finishing_ && under_way_ == 0) owner_->OnClosed(*this, opened_);
}

}  // namespace tandem
