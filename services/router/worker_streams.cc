#include "services/router/worker_streams.h"

#include <utility>

#include "common/rpc/worker_channel.h"

namespace tandem {
namespace {

// Opens one session of either kind. `on_message` gets (session, reply).
template <typename Service, typename Command, typename Reply, typename Sessions>
void OpenStream(Worker worker, SessionId session, const Address& address,
                grpc::CompletionQueue* queue, Sessions* sessions, WorkerStreams::Owner* owner,
                void (WorkerStreams::Owner::*on_message)(SessionId, Reply&)) {
  auto& opened = (*sessions)[session];
  opened.channel = ConnectWorker(address);
  opened.stub = Service::NewStub(opened.channel);
  opened.stream = std::make_unique<ClientStream<Command, Reply>>(
      [=](Reply& reply) {
        if (!sessions->at(session).given_up) (owner->*on_message)(session, reply);
      },
      [=](const grpc::Status& status) {
        const bool given_up = sessions->at(session).given_up;
        sessions->erase(session);
        if (given_up) return;
        owner->OnSessionLost(worker, session,
                             status.ok() ? "it ended the stream" : status.error_message());
      });
  opened.stream->Start([stub = opened.stub.get(), queue](grpc::ClientContext* context) {
    return stub->PrepareAsyncSession(context, queue);
  });
}

}  // namespace

WorkerStreams::WorkerStreams(Address verifier, std::optional<Address> drafter,
                             grpc::CompletionQueue* queue, Owner* owner)
    : verifier_(std::move(verifier)), drafter_(std::move(drafter)), queue_(queue), owner_(owner) {}

void WorkerStreams::Open(Worker worker, SessionId session) {
  if (worker == Worker::kVerifier) {
    OpenStream<v1::VerifierWorker, v1::VerifierCommand, v1::VerifierReply>(
        worker, session, verifier_, queue_, &verifier_sessions_, owner_, &Owner::OnVerifierReply);
  } else if (drafter_.has_value()) {
    OpenStream<v1::DraftWorker, v1::DraftCommand, v1::DraftReply>(
        worker, session, *drafter_, queue_, &drafter_sessions_, owner_, &Owner::OnDraftReply);
  }
}

void WorkerStreams::Close(SessionId session) {
  const auto give_up = [session](auto& sessions) {
    const auto it = sessions.find(session);
    if (it == sessions.end()) return;
    it->second.given_up = true;
    it->second.stream->Cancel();
  };
  give_up(drafter_sessions_);
  give_up(verifier_sessions_);
}

void WorkerStreams::Send(SessionId session, v1::DraftCommand command) {
  const auto it = drafter_sessions_.find(session);
  if (it != drafter_sessions_.end()) it->second.stream->Write(std::move(command));
}

void WorkerStreams::Send(SessionId session, v1::VerifierCommand command) {
  const auto it = verifier_sessions_.find(session);
  if (it != verifier_sessions_.end()) it->second.stream->Write(std::move(command));
}

void WorkerStreams::CloseAll() {
  for (auto& [session, opened] : drafter_sessions_) {
    opened.given_up = true;
    opened.stream->Cancel();
  }
  for (auto& [session, opened] : verifier_sessions_) {
    opened.given_up = true;
    opened.stream->Cancel();
  }
}

}  // namespace tandem
