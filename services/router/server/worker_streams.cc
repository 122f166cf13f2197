#include "services/router/server/worker_streams.h"

#include <utility>

namespace tandem {

template <typename Service, typename Command, typename Reply>
void WorkerStreams::OpenStream(Worker worker, SessionId session, const Address& address,
                               Sessions<Service, Command, Reply>* sessions,
                               void (Owner::*on_message)(SessionId, Reply&)) {
  auto& opened = (*sessions)[session];
  opened.channel = ConnectWorker(address, tls_);
  opened.stub = Service::NewStub(opened.channel);
  opened.stream = std::make_unique<ClientStream<Command, Reply>>(
      [=, this](Reply& reply) {
        if (!sessions->at(session).given_up) (owner_->*on_message)(session, reply);
      },
      [=, this](const grpc::Status& status) {
        const bool given_up = sessions->at(session).given_up;
        sessions->erase(session);
        StopWatching(session);
        if (given_up) return;
        owner_->OnSessionLost(worker, session,
                              status.ok() ? "the worker ended the stream" : status.error_message());
      });
  opened.stream->Start([this, stub = opened.stub.get()](grpc::ClientContext* context) {
    return stub->PrepareAsyncSession(context, queue_);
  });
}

WorkerStreams::WorkerStreams(WorkerTls tls, grpc::CompletionQueue* queue, Owner* owner)
    : tls_(std::move(tls)), queue_(queue), owner_(owner) {}

void WorkerStreams::Open(Worker worker, SessionId session, const Address& address) {
  if (worker == Worker::kVerifier) {
    OpenStream(worker, session, address, &verifier_sessions_, &Owner::OnVerifierReply);
  } else {
    OpenStream(worker, session, address, &drafter_sessions_, &Owner::OnDraftReply);
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
  StopWatching(session);
}

void WorkerStreams::Send(SessionId session, v1::DraftCommand command) {
  const auto it = drafter_sessions_.find(session);
  if (it != drafter_sessions_.end()) it->second.stream->Write(std::move(command));
}

void WorkerStreams::Send(SessionId session, v1::VerifierCommand command) {
  const auto it = verifier_sessions_.find(session);
  if (it != verifier_sessions_.end()) it->second.stream->Write(std::move(command));
}

void WorkerStreams::Ping(Worker worker, SessionId session, uint64_t token) {
  auto watch = watches_.find(session);
  if (watch == watches_.end()) {
    const std::shared_ptr<grpc::Channel> channel = Channel(session);
    if (channel == nullptr) return;
    watch = watches_.try_emplace(session).first;
    watch->second.stub = v1::WorkerHealth::NewStub(channel);
    watch->second.stream = std::make_unique<ClientStream<v1::WatchPing, v1::WatchPong>>(
        [this, worker, session](const v1::WatchPong& pong) {
          owner_->OnPong(worker, session, pong);
        },
        [this, session](const grpc::Status&) { watches_.erase(session); });
    watch->second.stream->Start([this, stub = watch->second.stub.get()](auto* context) {
      return stub->PrepareAsyncWatch(context, queue_);
    });
  }
  v1::WatchPing ping;
  ping.set_session_token(token);
  watch->second.stream->Write(std::move(ping));
}

std::shared_ptr<grpc::Channel> WorkerStreams::Channel(SessionId session) const {
  const auto drafter = drafter_sessions_.find(session);
  if (drafter != drafter_sessions_.end()) return drafter->second.channel;
  const auto verifier = verifier_sessions_.find(session);
  return verifier != verifier_sessions_.end() ? verifier->second.channel : nullptr;
}

void WorkerStreams::StopWatching(SessionId session) {
  const auto watch = watches_.find(session);
  if (watch != watches_.end()) watch->second.stream->Cancel();
}

void WorkerStreams::CloseAll() {
  const auto give_up = [](auto& sessions) {
    for (auto& [session, opened] : sessions) {
      opened.given_up = true;
      opened.stream->Cancel();
    }
  };
  give_up(drafter_sessions_);
  give_up(verifier_sessions_);
  for (auto& [session, watch] : watches_) watch.stream->Cancel();
}

}  // namespace tandem
