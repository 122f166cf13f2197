// Simulates 1 to 1,000 worker pods, to show how replicas add up. The routers' own fleets
// (placement, engines, queues, moves) run over simulated pods with the measured costs of real ones.
// docs/scaling.md lists the simplifications. All results except the column `code µs a token` are
// the same on every machine.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/rpc/heartbeat.h"
#include "common/rpc/protocol.h"
#include "services/router/fleet/fleet.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/simulator/scenario/seeded_random.h"

namespace tandem::bench {
namespace {

using simulator::SeededRandom;

// Costs of the embedded pair on two cores with plain decoding (bench/results/serving.md, "load
// embedded", greedy). The verifier's part of a round is 0.47, 1.5, 3.0 and 7.0 ms with 1, 8, 16 and
// 32 clients.
constexpr double kBatchSeconds = 0.00025;
constexpr double kRowSeconds = 0.0002;
constexpr double kPromptRowSeconds = 0.00008;
constexpr double kMeasuredPodTokensPerSecond = 3591;  // with 32 clients, in the same table
constexpr double kNetworkSeconds = 0.0002;            // one way within a cluster
// Time of a router's thread, including gRPC and the kernel's sockets, for each message that it
// handles and for each token that it sends to a client. docs/scaling.md describes the measurement.
constexpr double kRouterEventSeconds = 0.00018;
constexpr double kRouterTokenSeconds = 0.000017;

constexpr uint32_t kPodSlots = 32;
constexpr uint32_t kPageTokens = 64;
constexpr uint32_t kPodPages = 256;
constexpr uint32_t kContext = 2048;
constexpr size_t kQueue = 64;  // queue of a router
constexpr int kTenants = 64;
constexpr int kFewestConnections = 8;       // connections of a tenant
constexpr double kCallsOfConnection = 100;  // largest number of calls at the same time
constexpr int32_t kToken = 5;

// How a router learns what other routers do at a pod.
enum class Told { kNothing, kHeartbeats, kHeartbeatsAndReplies };

constexpr std::array<const char*, 3> kToldNames = {"nothing", "heartbeats",
                                                   "heartbeats and replies"};

struct Setting {
  int pods = 1;
  int routers = 1;
  int groups = 1;     // pods and routers are split evenly; a router serves the pods of its group
  double load = 0.8;  // requested share of the load that the pods can serve
  double seconds = 20;
  double lost_share = 0;  // share of the pods that are killed half way, for kDownSeconds
  Told told = Told::kHeartbeatsAndReplies;
  int seeds = 1;  // number of runs; the row is their mean
};
constexpr double kDownSeconds = 3;
// Every period of two seconds begins with a burst, which has half of the requests. Each run
// therefore has the same share of bursts.
constexpr double kBurstPeriodSeconds = 2;
constexpr double kBurstSeconds = 0.4;
constexpr double kBurstRate = 2.5;      // in times of the mean rate
constexpr double kBetweenRate = 0.625;  // in times of the mean rate

// Returns the seconds that a full pod needs for one request.
double PodSeconds(double prompt, double output) {
  return output * (kRowSeconds + kBatchSeconds / kPodSlots) + prompt * kPromptRowSeconds;
}

// Draws from a log-normal distribution: half of the requests are longer than `median`, and one in a
// hundred is ten times longer.
int HeavyTailed(SeededRandom& random, double median, int longest) {
  const double u = std::max(random.Real(0, 1), 1e-12);
  const double v = random.Real(0, 1);
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
  return std::clamp(static_cast<int>(median * std::exp(normal)), 1, longest);
}

double Percentile(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  const auto place = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<ptrdiff_t>(place), values.end());
  return values[place];
}

// Returns 1 if all shares are equal, and 1/n if one of them is everything.
double JainIndex(const std::vector<double>& shares) {
  double sum = 0;
  double squares = 0;
  for (const double share : shares) {
    sum += share;
    squares += share * share;
  }
  return squares == 0 ? 1 : sum * sum / (static_cast<double>(shares.size()) * squares);
}

// A verifier that computes the batches of all routers one after the other, in the order of their
// arrival.
struct Pod {
  struct Slot {
    uint32_t epoch = 0;
    uint32_t rows = 0;
    bool open = false;
  };
  bool alive = true;
  uint64_t life = 0;
  double busy_until = 0;
  double busy_seconds = 0;
  std::map<std::pair<int, SessionId>, std::vector<Slot>> sessions;  // by router and session
  uint32_t num_open = 0;
  uint32_t num_used_pages = 0;

  static uint32_t PagesOf(uint32_t rows) { return (rows + kPageTokens - 1) / kPageTokens; }
  void Resize(Slot& slot, uint32_t rows) {
    num_used_pages += PagesOf(rows);
    num_used_pages -= PagesOf(slot.rows);
    slot.rows = rows;
  }
  void Close(Slot& slot) {
    if (!slot.open) return;
    Resize(slot, 0);
    slot.open = false;
    --num_open;
  }
  void Die() {
    alive = false;
    ++life;
    sessions.clear();
    num_open = num_used_pages = 0;
    busy_until = 0;
  }
};

struct Call {
  double arrived_at = 0;
  double first_at = 0;
  double last_at = 0;
  double longest_gap = 0;
  int tenant = 0;
  int wanted = 0;
  int tokens = 0;
  bool ended = false;
  bool ok = false;
};

class World {
 public:
  World(const Setting& setting, uint64_t seed)
      : setting_(setting),
        random_(seed),
        clients_(SeededRandom(seed).Fork()),
        tokenizer_(testing::ToyTokenizer::OfSize(64)),
        pods_(static_cast<size_t>(setting.pods)) {
    const std::array<uint8_t, 32> fingerprint = tokenizer_.Fingerprint();
    attached_.set_protocol_version(kProtocolVersion);
    attached_.set_model("simulated");
    attached_.set_numerics_id("simulated");
    attached_.set_vocabulary_size(64);
    attached_.set_vocabulary_fingerprint(std::string(fingerprint.begin(), fingerprint.end()));
    attached_.set_max_context_tokens(kContext);
    attached_.set_max_slots(kPodSlots);
    attached_.set_page_tokens(kPageTokens);
    attached_.set_num_pages(kPodPages);
    attached_.set_lease_seconds(kLeaseSeconds);
  }

  nlohmann::json Run() {
    std::vector<PodSpec> specs;
    for (int i = 0; i < setting_.pods; ++i) specs.push_back({absl::StrCat("pod:", i), {}});
    EngineOptions options;
    options.workers.num_drafters = 0;
    options.max_queue = kQueue;
    for (int i = 0; i < setting_.routers; ++i) {
      options.workers.first_session_token = random_.Next();
      routers_.push_back(std::make_unique<Router>(
          Router{std::make_unique<Fleet>(options, &tokenizer_, NobodyObserves(), random_.Next())}));
      const int group = setting_.pods / setting_.groups;
      const auto first = specs.begin() + GroupOf(i) * group;
      Handle(i, [this, own = std::vector<PodSpec>(first, first + group)](Fleet& fleet) {
        fleet.Start(now_);
        fleet.SetPods(own, now_);
      });
    }
    RunUntil(kStartTime + 1);  // all routers attach
    MakeConnections();
    const double begin = now_;
    const double end = begin + setting_.seconds;
    At(begin, [this, begin, end] { Arrive(begin, end); });
    if (setting_.lost_share > 0) {
      At(begin + setting_.seconds / 2, [this] { KillSome(); });
    }
    // Throughput counts in the second half only, because nothing runs at the beginning.
    RunUntil(begin + setting_.seconds / 2);
    const uint64_t tokens_before = num_tokens_;
    const double busy_before = BusySeconds();
    const double code_before = CodeSeconds();
    const double router_before = RouterSeconds();
    RunUntil(end);
    const uint64_t tokens = num_tokens_ - tokens_before;
    const double busy = BusySeconds() - busy_before;
    const double code = CodeSeconds() - code_before;
    const double router = RouterSeconds() - router_before;
    // Requests in progress end here.
    for (int i = 0; i < 1000 && num_live_ > 0; ++i) RunUntil(now_ + 0.1);
    return Report(tokens, busy, code, router);
  }

 private:
  static constexpr double kStartTime = 100;
  struct Router {
    std::unique_ptr<Fleet> fleet;
    double tick_at = std::numeric_limits<double>::infinity();
    uint64_t tick_number = 0;
    std::deque<std::function<void(Fleet&)>> inbox = {};
    bool working = false;
    double busy_seconds = 0;  // simulated time of the router's thread
    double code_seconds = 0;  // real time that this process spends in the fleet's code
  };
  struct Event {
    double at;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(other.at, other.number) < std::tie(at, number);
    }
  };

  void At(double at, std::function<void()> run) {
    events_.push({std::max(at, now_), ++last_event_, std::move(run)});
  }
  void RunUntil(double until) {
    while (!events_.empty() && events_.top().at <= until) {
      const std::function<void()> run = std::move(const_cast<Event&>(events_.top()).run);
      now_ = events_.top().at;
      events_.pop();
      run();
    }
    now_ = until;
  }

  // ------------------------------------------------------------ routers

  int GroupOf(int router) const { return router * setting_.groups / setting_.routers; }

  // The router's thread handles one event after the other. Its commands are sent when the event has
  // been handled.
  void Handle(int router, std::function<void(Fleet&)> event) {
    Router& of = *routers_[static_cast<size_t>(router)];
    of.inbox.push_back(std::move(event));
    if (!of.working) Work(router);
  }
  void Work(int router) {
    Router& of = *routers_[static_cast<size_t>(router)];
    of.working = !of.inbox.empty();
    if (!of.working) return;
    const std::function<void(Fleet&)> event = std::move(of.inbox.front());
    of.inbox.pop_front();
    const auto begin = std::chrono::steady_clock::now();
    event(*of.fleet);
    const auto commands = std::make_shared<EngineCommands>(of.fleet->TakeCommands());
    of.code_seconds +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    double seconds = kRouterEventSeconds;
    for (const EngineCommand& command : *commands) {
      if (const auto* write = std::get_if<WriteResponse>(&command)) {
        seconds += kRouterTokenSeconds * write->response.token_ids_size();
      }
    }
    of.busy_seconds += seconds;
    At(now_ + seconds, [this, router, commands] {
      for (EngineCommand& command : *commands) Execute(router, command);
      routers_[static_cast<size_t>(router)]->fleet->OnCommandsSent(now_);
      ScheduleTick(router);
      Work(router);
    });
  }

  void ScheduleTick(int router) {
    Router& of = *routers_[static_cast<size_t>(router)];
    const double deadline = of.fleet->NextDeadline();
    if (std::isinf(deadline) || (of.tick_at > now_ && of.tick_at <= deadline)) return;
    of.tick_at = std::max(deadline, now_) + 1e-6;
    At(of.tick_at, [this, router, number = ++of.tick_number] {
      Router& ticked = *routers_[static_cast<size_t>(router)];
      if (number != ticked.tick_number) return;
      ticked.tick_at = 0;
      Handle(router, [this](Fleet& fleet) { fleet.Tick(now_); });
    });
  }

  // A router counts the pods of its group from 0.
  size_t PodOf(int router, SessionId session) const {
    const int first = GroupOf(router) * (setting_.pods / setting_.groups);
    return static_cast<size_t>(first) + static_cast<size_t>(session >> 32);
  }

  void Lose(int router, SessionId session) {
    At(now_ + kNetworkSeconds, [this, router, session] {
      Handle(router, [this, session](Fleet& fleet) {
        fleet.OnSessionLost(Worker::kVerifier, session, "connection refused", now_);
      });
    });
  }

  void Execute(int router, EngineCommand& command) {
    if (const auto* open = std::get_if<OpenSession>(&command)) {
      Pod& pod = pods_[PodOf(router, open->session)];
      if (!pod.alive) return Lose(router, open->session);
      pod.sessions[{router, open->session}].resize(kPodSlots);
    } else if (const auto* close = std::get_if<CloseSession>(&command)) {
      Pod& pod = pods_[PodOf(router, close->session)];
      const auto session = pod.sessions.find({router, close->session});
      if (session == pod.sessions.end()) return;
      for (Pod::Slot& slot : session->second) pod.Close(slot);
      pod.sessions.erase(session);
    } else if (auto* send = std::get_if<SendToVerifier>(&command)) {
      auto message = std::make_shared<SendToVerifier>(std::move(*send));
      At(now_ + kNetworkSeconds, [this, router, message] { Compute(router, *message); });
    } else if (const auto* ping = std::get_if<SendPing>(&command)) {
      Ping(router, ping->session);
    } else if (const auto* write = std::get_if<WriteResponse>(&command)) {
      OnTokens(router, write->call, write->response.token_ids_size());
    } else if (const auto* finish = std::get_if<FinishCall>(&command)) {
      OnFinished(router, finish->call, finish->status);
    } else if (const auto* give_up = std::get_if<GiveUp>(&command)) {
      std::fprintf(stderr, "%s\n", give_up->status.ToString().c_str());
      std::abort();
    }
  }

  // ------------------------------------------------------------ pods

  void Ping(int router, SessionId session) {
    At(now_ + kNetworkSeconds, [this, router, session] {
      const Pod& pod = pods_[PodOf(router, session)];
      if (!pod.alive) return;
      v1::WatchPong pong;
      pong.set_computing(pod.busy_until > now_);
      pong.set_progress(++progress_);
      if (setting_.told != Told::kNothing) {
        pong.set_num_open_slots(pod.num_open);
        pong.set_num_free_pages(kPodPages - pod.num_used_pages);
      }
      At(now_ + kNetworkSeconds, [this, router, session, pong] {
        Handle(router, [this, session, pong](Fleet& fleet) {
          fleet.OnPong(Worker::kVerifier, session, pong, now_);
        });
      });
    });
  }

  void Compute(int router, const SendToVerifier& send) {
    Pod& pod = pods_[PodOf(router, send.session)];
    const auto session = pod.sessions.find({router, send.session});
    if (!pod.alive || session == pod.sessions.end()) return;
    std::vector<Pod::Slot>& slots = session->second;
    auto reply = std::make_shared<v1::VerifierReply>();
    reply->set_id(send.command.id());
    double seconds = 0;
    const auto close = [&](const v1::UpdateSlots& update) {
      for (const v1::SlotClose& one : update.closes()) {
        Pod::Slot& slot = slots[one.slot()];
        if (slot.epoch == one.slot_epoch()) pod.Close(slot);
      }
    };
    if (send.command.has_attach()) {
      *reply->mutable_attach() = attached_;
    } else if (send.command.has_update_slots()) {
      close(send.command.update_slots());
      reply->mutable_update_slots();
    } else {
      const v1::Verify& verify = send.command.verify();
      close(verify.update_slots());
      seconds = kBatchSeconds;
      v1::VerifyReply& verified = *reply->mutable_verify();
      for (const v1::VerifyItem& item : verify.items()) {
        *verified.add_results() = VerifyOne(item, pod, slots, &seconds);
      }
      verified.set_compute_seconds(seconds);
      verified.set_num_free_pages(kPodPages - pod.num_used_pages);
      if (setting_.told == Told::kHeartbeatsAndReplies) verified.set_num_open_slots(pod.num_open);
    }
    pod.busy_until = std::max(pod.busy_until, now_) + seconds;
    pod.busy_seconds += seconds;
    At(pod.busy_until + kNetworkSeconds,
       [this, router, session_id = send.session, life = pod.life, reply] {
         if (pods_[PodOf(router, session_id)].life != life) return;
         Handle(router, [this, session_id, reply](Fleet& fleet) {
           fleet.OnVerifierReply(session_id, *reply, now_);
         });
       });
  }

  v1::VerifyResult VerifyOne(const v1::VerifyItem& item, Pod& pod, std::vector<Pod::Slot>& slots,
                             double* seconds) {
    v1::VerifyResult result;
    v1::SlotState& state = *result.mutable_state();
    Pod::Slot& slot = slots[item.at().slot()];
    state.set_slot(item.at().slot());
    state.set_slot_epoch(item.at().slot_epoch());
    state.set_command_number(item.at().command_number());
    const auto refuse = [&](v1::WorkerCode code) {
      state.set_code(code);
      state.set_cached_len(slot.rows);
      state.set_prefix_hash(item.at().prefix_hash());  // the pod keeps all of its rows or none
      return result;
    };
    if (item.has_open() && item.at().slot_epoch() > slot.epoch) {
      pod.Close(slot);
      if (pod.num_open == kPodSlots) {
        state.set_message("no slot is free");
        state.set_slot_epoch(slot.epoch);  // the new epoch was not begun
        state.set_code(v1::WORKER_CODE_RESOURCE_EXHAUSTED);
        return result;
      }
      slot = {item.at().slot_epoch(), 0, true};
      ++pod.num_open;
    }
    if (!slot.open || item.at().length() > slot.rows) return refuse(v1::WORKER_CODE_ABORTED);
    pod.Resize(slot, item.at().length());
    const auto rows = slot.rows + static_cast<uint32_t>(item.token_ids_size());
    if (Pod::PagesOf(rows) - Pod::PagesOf(slot.rows) > kPodPages - pod.num_used_pages) {
      return refuse(v1::WORKER_CODE_RESOURCE_EXHAUSTED);
    }
    *seconds +=
        item.token_ids_size() == 1 ? kRowSeconds : kPromptRowSeconds * item.token_ids_size();
    pod.Resize(slot, rows);
    state.set_code(v1::WORKER_CODE_OK);
    state.set_cached_len(rows);
    if (item.sample()) result.set_next_token_id(kToken);
    return result;
  }

  void KillSome() {
    const auto count =
        std::max(1, static_cast<int>(std::lround(setting_.lost_share * setting_.pods)));
    for (int i = 0; i < count; ++i) {
      // The killed pods are spread over all groups, as failing nodes would be.
      Pod& pod = pods_[static_cast<size_t>(i * (setting_.pods / count))];
      const auto sessions = pod.sessions;
      pod.Die();
      for (const auto& [key, slots] : sessions) Lose(key.first, key.second);
      At(now_ + kDownSeconds, [&pod] { pod.alive = true; });
    }
  }

  // ------------------------------------------------------------ clients

  static double Popularity(int tenant) { return 1 / std::pow(tenant + 1, 1.1); }  // Zipf

  // Tenants have connections, and a connection leads to one router. The requests of a tenant with
  // much traffic therefore reach few routers.
  void MakeConnections() {
    double total = 0;
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      total += Popularity(tenant);
      popularity_.push_back(total);
    }
    const double calls = double{kPodSlots} * setting_.pods;
    for (int tenant = 0; tenant < kTenants; ++tenant) {
      const auto needed =
          static_cast<int>(std::ceil(Popularity(tenant) / total * calls / kCallsOfConnection));
      auto& connections = connections_.emplace_back(std::max(kFewestConnections, needed));
      for (int& router : connections) router = random_.Between(0, setting_.routers - 1);
    }
    // Mean lengths of the requests, to compute the load.
    SeededRandom lengths = clients_.Fork();
    double prompts = 0;
    double outputs = 0;
    for (int i = 0; i < 100000; ++i) {
      prompts += HeavyTailed(lengths, kMedianPrompt, kLongest);
      outputs += HeavyTailed(lengths, kMedianOutput, kLongest);
    }
    rate_ = setting_.load * setting_.pods / PodSeconds(prompts / 1e5, outputs / 1e5);
  }

  // Poisson arrivals at the rate of bursts. Between bursts, surplus arrivals are dropped.
  void Arrive(double begin, double end) {
    if (now_ >= end) return;
    const bool bursting = std::fmod(now_ - begin, kBurstPeriodSeconds) < kBurstSeconds;
    if (bursting || clients_.Real(0, 1) < kBetweenRate / kBurstRate) Request();
    At(now_ - std::log(1 - clients_.Real(0, 1)) / (rate_ * kBurstRate),
       [this, begin, end] { Arrive(begin, end); });
  }

  void Request() {
    const double draw = clients_.Real(0, popularity_.back());
    Call call;
    call.tenant = static_cast<int>(std::lower_bound(popularity_.begin(), popularity_.end(), draw) -
                                   popularity_.begin());
    const std::vector<int>& own = connections_[static_cast<size_t>(call.tenant)];
    const int router =
        own[static_cast<size_t>(clients_.Between(0, static_cast<int>(own.size()) - 1))];
    call.arrived_at = now_;
    call.wanted = HeavyTailed(clients_, kMedianOutput, kLongest);
    GenerationRequest request;
    request.prompt_token_ids.assign(
        static_cast<size_t>(HeavyTailed(clients_, kMedianPrompt, kLongest)), kToken);
    request.max_tokens = call.wanted;
    offered_seconds_ +=
        PodSeconds(static_cast<double>(request.prompt_token_ids.size()), call.wanted);
    request.open.mutable_sampling()->set_temperature(0);
    request.open.set_lenience(1);
    request.open.set_prompt_length(static_cast<uint32_t>(request.prompt_token_ids.size()));
    const auto id = static_cast<CallId>(calls_.size() + 1);
    request.request_id = absl::StrCat(id);
    calls_.push_back(call);
    ++num_live_;
    Handle(router, [this, router, id, request = std::move(request)](Fleet& fleet) {
      if (const auto refusal = fleet.RefusesAll(now_)) {
        OnFinished(router, id, refusal->status);
        return;
      }
      fleet.OnRequest(id, request, now_);
    });
  }

  void OnTokens(int /*router*/, CallId id, int count) {
    if (count == 0) return;
    Call& call = calls_[id - 1];
    if (call.tokens == 0) {
      call.first_at = now_;
    } else {
      call.longest_gap = std::max(call.longest_gap, now_ - call.last_at);
    }
    call.last_at = now_;
    call.tokens += count;
    num_tokens_ += static_cast<uint64_t>(count);
  }

  void OnFinished(int /*router*/, CallId id, const absl::Status& status) {
    Call& call = calls_[id - 1];
    call.ended = true;
    call.ok = status.ok();
    if (!status.ok()) {
      ++(status.code() == absl::StatusCode::kResourceExhausted ? num_refused_ : num_failed_);
    }
    --num_live_;
  }

  // ------------------------------------------------------------ results

  double BusySeconds() const {
    double busy = 0;
    for (const Pod& pod : pods_) busy += pod.busy_seconds;
    return busy;
  }
  double RouterSeconds() const {
    double seconds = 0;
    for (const auto& router : routers_) seconds += router->busy_seconds;
    return seconds;
  }
  double CodeSeconds() const {
    double seconds = 0;
    for (const auto& router : routers_) seconds += router->code_seconds;
    return seconds;
  }

  nlohmann::json Report(uint64_t tokens, double busy, double code, double router) const {
    std::vector<double> first;
    std::vector<double> per_token;
    std::vector<double> gaps;
    std::vector<double> speeds;
    std::map<int, std::pair<double, double>> of_tenant;  // tokens and seconds
    int num_ok = 0;
    int num_wrong = 0;
    for (const Call& call : calls_) {
      if (!call.ok) continue;
      ++num_ok;
      num_wrong += call.tokens == call.wanted ? 0 : 1;
      first.push_back(call.first_at - call.arrived_at);
      if (call.tokens > 1) {
        per_token.push_back((call.last_at - call.first_at) / (call.tokens - 1));
        gaps.push_back(call.longest_gap);
      }
      const double seconds = call.last_at - call.arrived_at;
      speeds.push_back(call.tokens / seconds);
      of_tenant[call.tenant].first += call.tokens;
      of_tenant[call.tenant].second += seconds;
    }
    std::vector<double> tenants;
    for (const auto& [tenant, sums] : of_tenant) tenants.push_back(sums.first / sums.second);
    uint64_t preemptions = 0;
    for (const auto& one : routers_) preemptions += one->fleet->State().counts.preemptions;
    const auto ms = [](const std::vector<double>& values) {
      return nlohmann::json{{"p50", 1000 * Percentile(values, 0.5)},
                            {"p95", 1000 * Percentile(values, 0.95)},
                            {"p99", 1000 * Percentile(values, 0.99)}};
    };
    const double seconds = setting_.seconds / 2;
    const double pod_seconds = setting_.pods * seconds;
    return {{"pods", setting_.pods},
            {"routers", setting_.routers},
            {"groups", setting_.groups},
            {"load", setting_.load},
            {"seconds", setting_.seconds},
            {"lost_share", setting_.lost_share},
            {"told", kToldNames[static_cast<size_t>(setting_.told)]},
            {"offered_load", offered_seconds_ / (setting_.pods * setting_.seconds)},
            {"requests", calls_.size()},
            {"completed", num_ok},
            {"refused", num_refused_},
            {"failed", num_failed_},
            {"unended", num_live_},
            {"wrong_lengths", num_wrong},
            {"preemptions", preemptions},
            {"tokens_per_second", static_cast<double>(tokens) / seconds},
            {"tokens_per_second_per_pod", static_cast<double>(tokens) / pod_seconds},
            {"busy_share", busy / pod_seconds},
            {"first_token_ms", ms(first)},
            {"token_ms", ms(per_token)},
            {"longest_gap_ms", ms(gaps)},
            {"jain_tenants", JainIndex(tenants)},
            {"jain_requests", JainIndex(speeds)},
            {"router_busy_share", router / (setting_.routers * seconds)},
            {"code_us_per_token", 1e6 * code / static_cast<double>(tokens)}};
  }

  static constexpr double kMedianPrompt = 64;
  static constexpr double kMedianOutput = 64;
  static constexpr int kLongest = 1000;

  const Setting setting_;
  SeededRandom random_;   // routers
  SeededRandom clients_;  // the same clients for all numbers of routers
  testing::ToyTokenizer tokenizer_;
  v1::AttachReply attached_;
  std::vector<Pod> pods_;
  std::vector<std::unique_ptr<Router>> routers_;
  std::priority_queue<Event> events_;
  std::vector<double> popularity_;
  std::vector<std::vector<int>> connections_;  // routers of each tenant's connections
  std::deque<Call> calls_;
  double now_ = kStartTime;
  double rate_ = 1;
  double offered_seconds_ = 0;  // time of the pods that the load needs
  uint64_t last_event_ = 0;
  uint64_t progress_ = 0;
  uint64_t num_tokens_ = 0;
  int num_live_ = 0;
  int num_refused_ = 0;
  int num_failed_ = 0;
};

// ---------------------------------------------------------------- settings and tables

struct Part {
  const char* name;
  std::string title;
  std::vector<Setting> settings;
};

std::vector<Part> Parts(int most_pods, int seeds) {
  std::vector<Part> parts(4);
  parts[0] = {"saturated",
              "Saturated: 1.3 times the load that the pods can serve, a queue of 64 in each router",
              {}};
  parts[1] = {"loaded", "Loaded to 80 %: waiting times of clients", {}};
  parts[2] = {"lost",
              "Loaded to 70 %, without a loss and then with one: a tenth of the pods (one at "
              "least) dies half way for 3 s",
              {}};
  parts[3] = {
      "routers",
      absl::StrCat("Loaded to 80 %, by the number of routers and by what they are told of each "
                   "other; runs for each mean: ",
                   seeds),
      {}};
  // Two routers can serve ten pods, so more pods are split into groups.
  const std::vector<std::array<int, 3>> sizes = {
      {1, 1, 1}, {10, 2, 1}, {100, 20, 10}, {1000, 200, 100}};
  for (const auto& [pods, routers, groups] : sizes) {
    if (pods > most_pods) continue;
    // Each half has a whole number of bursts.
    const double seconds = pods >= 1000 ? 8 : pods >= 100 ? 16 : 60;
    parts[0].settings.push_back({pods, routers, groups, 1.3, seconds});
    parts[1].settings.push_back({pods, routers, groups, 0.8, seconds});
    parts[2].settings.push_back({pods, routers, groups, 0.7, seconds});
    parts[2].settings.push_back({pods, routers, groups, 0.7, seconds, 0.1});
  }
  const int pods = std::min(32, most_pods);
  for (const int routers : {4, 8, 16}) {
    if (routers > pods) continue;
    for (const Told told : {Told::kNothing, Told::kHeartbeats, Told::kHeartbeatsAndReplies}) {
      parts[3].settings.push_back({pods, routers, 1, 0.8, 20, 0, told, seeds});
    }
  }
  return parts;
}

// Returns the rows with each number replaced by its mean. Whole numbers become means too.
nlohmann::json Mean(const std::vector<nlohmann::json>& of) {
  nlohmann::json mean = of.front();
  for (auto& [key, value] : mean.items()) {
    std::vector<nlohmann::json> values;
    for (const nlohmann::json& one : of) values.push_back(one.at(key));
    if (value.is_object()) {
      value = Mean(values);
    } else if (value.is_number()) {
      double sum = 0;
      for (const nlohmann::json& one : values) sum += one.get<double>();
      value = sum / static_cast<double>(values.size());
    }
  }
  return mean;
}

nlohmann::json Run(const Setting& setting, uint64_t seed) {
  if (setting.seeds == 1) return World(setting, seed).Run();
  std::vector<nlohmann::json> runs;
  nlohmann::json p95 = nlohmann::json::array();
  for (int i = 0; i < setting.seeds; ++i) {
    runs.push_back(World(setting, seed + static_cast<uint64_t>(i)).Run());
    p95.push_back(runs.back().at("first_token_ms").at("p95"));
  }
  nlohmann::json mean = Mean(runs);
  mean["first_token_p95_ms_of_seeds"] = std::move(p95);
  return mean;
}

std::string Three(const nlohmann::json& of, const char* name) {
  const nlohmann::json& ms = of.at(name);
  return absl::StrFormat("%.3g / %.3g / %.3g", ms.at("p50").get<double>(),
                         ms.at("p95").get<double>(), ms.at("p99").get<double>());
}

std::string Table(const nlohmann::json& rows) {
  std::string text =
      "| pods | routers | told of others | groups | offered | tokens/s | a pod | pods busy | "
      "routers busy | first token ms "
      "p50 / p95 / p99 | ms a token "
      "p50 / p95 / p99 | longest gap ms p50 / p95 / p99 | Jain, tenants | Jain, requests | "
      "completed | refused | failed | code µs a token |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
      "--- | --- | --- |\n";
  for (const nlohmann::json& row : rows) {
    absl::StrAppend(
        &text, absl::StrFormat(
                   "| %.0f%s | %.0f | %s | %.0f | %.0f %% | %.0f | %.0f | %.0f %% | %.0f %% | %s | "
                   "%s | %s | %.3f | "
                   "%.3f | %.0f | %.0f | %.0f | %.2f |\n",
                   row.at("pods").get<double>(),
                   row.at("lost_share").get<double>() > 0 ? ", with the loss" : "",
                   row.at("routers").get<double>(), row.at("told").get<std::string>(),
                   row.at("groups").get<double>(), 100 * row.at("offered_load").get<double>(),
                   row.at("tokens_per_second").get<double>(),
                   row.at("tokens_per_second_per_pod").get<double>(),
                   100 * row.at("busy_share").get<double>(),
                   100 * row.at("router_busy_share").get<double>(), Three(row, "first_token_ms"),
                   Three(row, "token_ms"), Three(row, "longest_gap_ms"),
                   row.at("jain_tenants").get<double>(), row.at("jain_requests").get<double>(),
                   row.at("completed").get<double>(), row.at("refused").get<double>(),
                   row.at("failed").get<double>(), row.at("code_us_per_token").get<double>()));
  }
  return text;
}

int Main(int argc, char** argv) {
  CLI::App app(
      "Simulates 1 to 1,000 worker pods under the router's own fleet, and writes the results");
  std::string out;
  int most_pods = 1000;
  int seeds = 3;
  uint64_t seed = 1;
  std::string only;
  app.add_option("--out", out, "Writes OUT.json and OUT.md")->type_name("OUT");
  app.add_option("--most-pods", most_pods, "Leaves out larger fleets")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--only", only, "Runs one part: saturated, loaded, lost or routers")
      ->check(CLI::IsMember({"saturated", "loaded", "lost", "routers"}));
  app.add_option("--seeds", seeds, "Number of runs for each mean of the part `routers`")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  app.add_option("--seed", seed, "Seed of lengths, arrivals and tenants")->capture_default_str();
  CLI11_PARSE(app, argc, argv);

  nlohmann::json results = {{"command",
                             "build/cpu-release/bin/scaling_simulation --out "
                             "bench/results/scaling"},
                            {"seed", seed},
                            {"batch_seconds", kBatchSeconds},
                            {"row_seconds", kRowSeconds},
                            {"prompt_row_seconds", kPromptRowSeconds},
                            {"network_seconds", kNetworkSeconds},
                            {"router_event_seconds", kRouterEventSeconds},
                            {"router_token_seconds", kRouterTokenSeconds},
                            {"measured_pod_tokens_per_second", kMeasuredPodTokensPerSecond}};
  std::string text =
      "# Figures of the scaling simulation\n\n"
      "The router's own fleet over simulated pods; [docs/scaling.md](../../docs/scaling.md) says "
      "what is simplified. `build/cpu-release/bin/scaling_simulation --out bench/results/scaling` "
      "makes them again.\n";
  bool sound = true;
  for (const Part& part : Parts(most_pods, seeds)) {
    if (!only.empty() && only != part.name) continue;
    nlohmann::json rows = nlohmann::json::array();
    for (const Setting& setting : part.settings) {
      const auto begin = std::chrono::steady_clock::now();
      rows.push_back(Run(setting, seed));
      const nlohmann::json& row = rows.back();
      std::fprintf(stderr, "%s: %d pods, %d routers: %.0f tokens/s, simulated in %.1f s\n",
                   part.name, setting.pods, setting.routers,
                   row.at("tokens_per_second").get<double>(),
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      // No token is lost, and none is sent twice.
      sound = sound && row.at("unended") == 0 && row.at("wrong_lengths") == 0;
    }
    absl::StrAppend(&text, "\n## ", part.title, "\n\n", Table(rows));
    results[part.name] = std::move(rows);
  }
  results["sound"] = sound;
  if (out.empty()) {
    std::fputs(text.c_str(), stdout);
  } else {
    std::ofstream(out + ".json") << results.dump(1) << "\n";
    std::ofstream(out + ".md") << text;
  }
  if (!sound) std::fputs("a request did not end, or ended with another length\n", stderr);
  return sound ? 0 : 1;
}

}  // namespace
}  // namespace tandem::bench

int main(int argc, char** argv) { return tandem::bench::Main(argc, argv); }
