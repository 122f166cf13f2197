// Runs a Fleet of one pod against toy workers, one message at a time, on a clock of its own.
#ifndef TANDEM_TESTS_ROUTER_ENGINE_DRIVER_H_
#define TANDEM_TESTS_ROUTER_ENGINE_DRIVER_H_

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "common/token_hash.h"
#include "services/router/fleet/fleet.h"
#include "tests/router/toy_corpus.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/router/toy_workers.h"

namespace tandem::testing {

struct CallResult {
  std::vector<int32_t> ids;
  std::vector<int> sources;
  std::vector<float> logprobs;
  std::vector<float> prompt_scores;    // log-probabilities of prompt tokens
  std::vector<int32_t> prompt_starts;  // ids of the prompt's first token
  std::string text;
  std::optional<v1::Completion> completion;
  std::optional<absl::Status> status;
  int emitted_tokens = 0;
  int retry_milliseconds = 0;
  std::optional<SlotLife> slot;  // the last that it had

  void Add(const v1::GenerateResponse& response) {
    ids.insert(ids.end(), response.token_ids().begin(), response.token_ids().end());
    sources.insert(sources.end(), response.sources().begin(), response.sources().end());
    for (const v1::TokenLogprobs& of_token : response.logprobs()) {
      logprobs.push_back(of_token.logprob());
    }
    for (const v1::TokenLogprobs& of_token : response.prompt_logprobs()) {
      prompt_scores.push_back(of_token.logprob());
    }
    if (response.has_prompt_start()) prompt_starts.push_back(response.prompt_start().token_id());
    text += response.text();
    if (response.has_completion()) completion = response.completion();
  }
  void End(const FinishCall& finish) {
    status = finish.status;
    emitted_tokens = finish.emitted_tokens;
    retry_milliseconds = finish.retry_milliseconds;
    slot = finish.slot;
  }
};

inline GenerationRequest GreedyRequest(std::vector<int32_t> prompt, int max_tokens) {
  GenerationRequest request;
  request.prompt_token_ids = std::move(prompt);
  request.max_tokens = max_tokens;
  request.open.mutable_sampling()->set_temperature(0);
  request.open.set_lenience(1);
  request.open.set_prompt_length(static_cast<uint32_t>(request.prompt_token_ids.size()));
  return request;
}

class EngineDriver {
 public:
  explicit EngineDriver(EngineOptions options = {}, ToyModel model = {},
                        EngineObserver* observer = NobodyObserves())
      : tokenizer(ToyTokenizer::OfSize(static_cast<size_t>(model.vocabulary_size))),
        drafter(model, WorkerOptions(model), &ring),
        verifier(model, WorkerOptions(model), &ring),
        fleet(options, &tokenizer, observer) {
    drafter.options.entries = tokenizer.entries();
  }

  // Asks both workers to attach.
  void Begin() {
    fleet.Start(now);
    fleet.SetPods({{"verifier", {"draft"}}}, now);
  }
  // Attaches what is alive.
  void Start() {
    Begin();
    Execute();
    while (Step()) {
    }
  }

  // The only pod's.
  const PodEngine& engine() const { return fleet.engine(0); }

  GenerationRequest Request(std::vector<int32_t> prompt, int max_tokens) const {
    return GreedyRequest(std::move(prompt), max_tokens);
  }

  CallId Send(GenerationRequest request) {
    const CallId call = ++last_call;
    if (request.request_id.empty()) request.request_id = "r" + std::to_string(call);
    fleet.OnRequest(call, std::move(request), now);
    Execute();
    return call;
  }
  // One that has ended stays as it ended.
  void Cancel(CallId call) {
    fleet.OnCancel(call, now);
    CallResult& result = calls[call];
    if (!result.status.has_value()) result.status = absl::CancelledError();
    Execute();
  }

  // Answers the searches that have no answer yet.
  void AnswerSearches() {
    for (const SearchCorpus& search : std::exchange(searches, {})) {
      fleet.OnSearched(search, corpus.Answer(search), now);
    }
  }

  // A worker dies: what it was sent and what it held is gone.
  void Kill(Worker worker) {
    (worker == Worker::kDrafter ? drafter_alive : verifier_alive) = false;
    const SessionId session = sessions[worker];
    sessions[worker] = 0;
    if (worker == Worker::kDrafter) {
      drafter.Reset();
      to_drafter.clear();
    } else {
      verifier.Reset();
      to_verifier.clear();
      ring = ToyRing();
      verifier.last_ring_epoch = 0;  // a new process counts anew
    }
    if (session == 0) return;
    fleet.OnSessionLost(worker, session, "killed", now);
    Execute();
  }
  void Revive(Worker worker) {
    (worker == Worker::kDrafter ? drafter_alive : verifier_alive) = true;
  }

  // Lets a worker answer one message; false: none has any.
  bool Step() {
    ++num_steps;
    now += 0.0005;
    if (!to_verifier.empty() && !(drafter_first && !to_drafter.empty())) {
      const SendToVerifier send = std::move(to_verifier.front());
      to_verifier.pop_front();
      if (send.session != sessions[Worker::kVerifier]) return true;
      std::optional<v1::VerifierReply> reply = verifier.Handle(send.command);
      if (!reply.has_value()) return true;
      now += std::max(0.002, reply->verify().compute_seconds());
      if (change_verifier_reply) change_verifier_reply(*reply);
      fleet.OnVerifierReply(send.session, *reply, now);
      Execute();
      return true;
    }
    if (!to_drafter.empty() && !drafter_hangs) {
      const SendToDrafter send = std::move(to_drafter.front());
      to_drafter.pop_front();
      if (send.session != sessions[Worker::kDrafter]) return true;
      for (v1::DraftReply& reply : drafter.Handle(send.command)) {
        if (change_draft_reply) change_draft_reply(reply);
        now += 0.001;
        fleet.OnDraftReply(send.session, reply, now);
        Execute();
      }
      return true;
    }
    return false;
  }

  // Until `done` holds; false: nothing can happen any more, and it does not hold.
  bool StepUntil(const std::function<bool()>& done) {
    while (!done()) {
      if (!Step()) return false;
    }
    return true;
  }
  // The same; where nothing can happen the clock goes on.
  bool RunUntil(const std::function<bool()>& done) {
    for (int step = 0; step < 100000; ++step) {
      if (done()) return true;
      if (Step()) continue;
      now = std::max(now, fleet.NextDeadline());
      fleet.Tick(now);
      Execute();
    }
    return false;
  }

  // Until all calls have ended; where nothing can happen the clock goes on. False: it never ends.
  bool Run(const std::function<void(int step)>& before_step = {}) {
    for (int step = 0; step < 100000; ++step) {
      if (before_step) before_step(step);
      if (fleet.idle() && to_verifier.empty() && to_drafter.empty()) return true;
      if (Step()) continue;
      const double deadline = fleet.NextDeadline();
      if (std::isinf(deadline)) return false;
      now = std::max(now, deadline);
      fleet.Tick(now);
      Execute();
    }
    return false;
  }

  // Until the call has ended. What the router does of itself after it is not waited for.
  void RunUntilEnd(CallId call) {
    while (!calls[call].status.has_value() && Step()) {
    }
  }

  // Runs one request alone.
  CallResult Generate(GenerationRequest request) {
    const CallId call = Send(std::move(request));
    Run();
    return calls[call];
  }

  void Execute() {
    for (EngineCommands commands = fleet.TakeCommands(); !commands.empty();
         commands = fleet.TakeCommands()) {
      for (EngineCommand& command : commands) ExecuteOne(command);
      fleet.OnCommandsSent(now + sent_late);
    }
  }

  ToyTokenizer tokenizer;
  ToyRing ring;
  ToyDrafter drafter;
  ToyVerifier verifier;
  Fleet fleet;
  double now = 100;
  bool drafter_alive = true;
  bool verifier_alive = true;
  bool drafter_hangs = false;  // computes for ever
  bool drafter_first = false;  // whether the drafter answers while the verifier has messages
  double sent_late = 0;        // seconds after which the router notes that it sent something
  bool answers_pings = true;
  std::map<Worker, v1::WatchPong> pong;
  std::function<void(v1::DraftReply&)> change_draft_reply;
  std::function<void(v1::VerifierReply&)> change_verifier_reply;
  ToyCorpus corpus;
  bool answers_searches = true;  // at once
  int num_searches = 0;
  std::vector<SearchCorpus> searches;  // those that have no answer
  std::map<CallId, CallResult> calls;
  std::map<Worker, SessionId> sessions;
  std::deque<SendToDrafter> to_drafter;
  std::deque<SendToVerifier> to_verifier;
  std::vector<std::string> log;  // the texts of `lines`
  std::vector<LogLine> lines;
  std::optional<absl::Status> gave_up;
  CallId last_call = 0;
  int num_steps = 0;

 private:
  ToyOptions WorkerOptions(const ToyModel& model) const {
    ToyOptions options;
    options.vocabulary_size = static_cast<uint32_t>(model.vocabulary_size);
    options.fingerprint = tokenizer.FingerprintBytes();
    return options;
  }

  void ExecuteOne(EngineCommand& command) {
    if (auto* open = std::get_if<OpenSession>(&command)) {
      const bool alive = KindOf(open->peer) == Worker::kDrafter ? drafter_alive : verifier_alive;
      if (!alive) {
        fleet.OnSessionLost(KindOf(open->peer), open->session, "connection refused", now);
        return;
      }
      sessions[KindOf(open->peer)] = open->session;
      if (KindOf(open->peer) == Worker::kDrafter) {
        drafter.Reset();
      } else {
        verifier.Reset();
      }
    } else if (auto* close = std::get_if<CloseSession>(&command)) {
      if (sessions[close->worker] == close->session) sessions[close->worker] = 0;
    } else if (auto* to_draft = std::get_if<SendToDrafter>(&command)) {
      if (to_draft->session == sessions[Worker::kDrafter]) {
        to_drafter.push_back(std::move(*to_draft));
      }
    } else if (auto* to_target = std::get_if<SendToVerifier>(&command)) {
      if (to_target->session == sessions[Worker::kVerifier]) {
        to_verifier.push_back(std::move(*to_target));
      }
    } else if (auto* ping = std::get_if<SendPing>(&command)) {
      if (ping->session == sessions[ping->worker] && answers_pings) {
        fleet.OnPong(ping->worker, ping->session, pong[ping->worker], now);
      }
    } else if (auto* search = std::get_if<SearchCorpus>(&command)) {
      ++num_searches;
      searches.push_back(std::move(*search));
      if (answers_searches) AnswerSearches();
    } else if (auto* write = std::get_if<WriteResponse>(&command)) {
      calls[write->call].Add(write->response);
    } else if (auto* finish = std::get_if<FinishCall>(&command)) {
      calls[finish->call].End(*finish);
    } else if (auto* line = std::get_if<LogLine>(&command)) {
      log.push_back(line->text);
      lines.push_back(std::move(*line));
    } else if (auto* give_up = std::get_if<GiveUp>(&command)) {
      gave_up = give_up->status;
    }
  }
};

// Returns the first `n` tokens that the target alone says after `prompt`.
inline std::vector<int32_t> Plainly(const ToyModel& model, const std::vector<int32_t>& prompt,
                                    size_t n) {
  std::vector<int32_t> tokens;
  uint64_t hash = HashTokens(prompt);
  for (size_t i = 0; i < n; ++i) {
    tokens.push_back(model.Target(hash));
    hash = ExtendTokenHash(hash, tokens.back());
  }
  return tokens;
}
inline std::vector<int32_t> Plainly(const std::vector<int32_t>& prompt, size_t n) {
  return Plainly(ToyModel(), prompt, n);
}

// Returns the request with plain sampling at temperature 1.
inline GenerationRequest Sampled(GenerationRequest request) {
  request.open.mutable_sampling()->set_temperature(1);
  return request;
}

// Returns true if a line of the router's log has these words.
inline bool Says(const EngineDriver& driver, const std::string& words) {
  return std::any_of(driver.log.begin(), driver.log.end(), [&](const std::string& line) {
    return line.find(words) != std::string::npos;
  });
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_ROUTER_ENGINE_DRIVER_H_
