// The simulated world. Routers (fleets), fake workers, the network, clients and faults share one
// clock.
#ifndef TANDEM_TESTS_SIMULATOR_WORLD_H_
#define TANDEM_TESTS_SIMULATOR_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "services/router/fleet/fleet.h"
#include "tests/router/toy_corpus.h"
#include "tests/router/toy_tokenizer.h"
#include "tests/simulator/checker.h"
#include "tests/simulator/falsifier.h"
#include "tests/simulator/scenario/planted_bug.h"
#include "tests/simulator/scenario/scenario.h"
#include "tests/simulator/scenario/seeded_random.h"
#include "tests/simulator/worker/fake_worker.h"

namespace tandem::simulator {

// The result of a run.
struct RunResult {
  std::optional<Finding> finding;
  Sights sights;
  uint64_t digest = 0;  // digest of all events; equal seeds have equal digests
  int num_steps = 0;
};

class World {
 public:
  // `scenario` must outlive the world. `trace` gets a line for each step unless it is null.
  World(const Scenario* scenario, PlantedBug bug, std::string* trace);
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  // Runs to the end, or to the first broken invariant.
  RunResult Run();

 private:
  // One life of a worker.
  struct Process {
    Process(uint32_t of_pod, PeerId of_peer, FakeWorker fake)
        : pod(of_pod), peer(of_peer), worker(std::move(fake)) {}
    uint32_t pod;
    PeerId peer;
    FakeWorker worker;
    bool alive = true;
    bool stopped = false;  // answers nothing
    bool stuck = false;    // answers pings only
    bool misfit = false;   // has another vocabulary
    bool drains = false;   // was told to stop
    bool busy = false;
    uint64_t progress = 0;
    std::deque<std::function<void()>> inbox;
    std::vector<std::function<void()>> late;  // messages that a stopped worker still has to send
  };
  // The newest processes of the workers that share a host. All routers know them by one address.
  struct Pod {
    PodSpec spec;
    FakeRings rings;
    std::vector<std::shared_ptr<Process>> processes;  // by peer; null: not started yet
  };
  struct Stream {
    StreamId id;
    PeerId peer;
    RouterId router;
    SessionId session;
    std::shared_ptr<Process> process;
    bool router_open = true;  // the router did not close it and was not told that it is lost
    bool worker_open = true;
    bool silent = false;      // the network in between is gone
    double to_worker_at = 0;  // time of the last message; the next message arrives later
    double to_router_at = 0;
  };
  struct Router {
    RouterId id;
    std::unique_ptr<Falsifier> falsifier;
    std::unique_ptr<Fleet> fleet;
    bool alive = true;
    double tick_at = 0;
    uint64_t tick_number = 0;
    int overdue_ticks = 0;
    std::map<SessionId, std::shared_ptr<Stream>> streams;
    DraftRoster roster;  // what the operator wants of it
  };
  struct Client {
    RouterId router = 0;
    size_t plan = 0;
    int responses = 0;
  };
  struct Event {
    double at;
    uint64_t number;
    std::function<void()> run;
    bool operator<(const Event& other) const {
      return std::tie(other.at, other.number) < std::tie(at, number);
    }
  };

  void At(double at, std::function<void()> run);
  void After(double seconds, std::function<void()> run) { At(now_ + seconds, std::move(run)); }
  double Delay() { return random_.Real(0.0001, scenario_->network.longest_seconds); }
  // Runs `run` at a time. The world is not quiet while such a message is under way.
  void Deliver(double at, std::function<void()> run);

  void StartRouter();
  void KillRouter(Router& router, double linger_seconds);
  void Settle(Router& router);
  void Execute(Router& router, EngineCommand& command);
  void Search(Router& router, SearchCorpus search);
  void ScheduleTick(Router& router);
  void OpenStream(Router& router, PeerId peer, SessionId session);
  void SendToWorker(const std::shared_ptr<Stream>& stream, WorkerCommand command);
  void SendToRouter(const std::shared_ptr<Stream>& stream, WorkerReply reply);
  void DeliverReply(const std::shared_ptr<Stream>& stream, WorkerReply reply);
  void LoseStream(const std::shared_ptr<Stream>& stream, double after_seconds, const char* why);
  void EndAtWorker(const std::shared_ptr<Stream>& stream);
  void Ping(const std::shared_ptr<Stream>& stream);
  void Excuse(const std::shared_ptr<Stream>& stream, Checker::Excuse excuse);
  void ExcuseAll(const std::shared_ptr<Process>& process, Checker::Excuse excuse);
  std::vector<std::shared_ptr<Stream>> StreamsOf(const std::shared_ptr<Process>& process);

  std::shared_ptr<Process>& process(uint32_t pod, PeerId peer) {
    return pods_[pod].processes[peer];
  }
  // The verifier of the pod, or one of its drafters.
  std::shared_ptr<Process> AnyOf(uint32_t pod, Worker worker);
  std::string NameOf(uint32_t pod, PeerId peer) const;
  std::string NameOf(const Process& process) const { return NameOf(process.pod, process.peer); }
  void StartProcess(uint32_t pod, PeerId peer, bool other_vocabulary);
  void KillProcess(const std::shared_ptr<Process>& process, bool silently);
  void Enqueue(const std::shared_ptr<Process>& process, std::function<void()> job);
  void Work(const std::shared_ptr<Process>& process);
  void Compute(const std::shared_ptr<Process>& process, const std::shared_ptr<Stream>& stream,
               const WorkerCommand& command);
  void SpoilReply(const std::shared_ptr<Stream>& stream, WorkerReply* reply);
  void Resume(const std::shared_ptr<Process>& process);

  void Arrive(const ClientPlan& plan);
  void Cancel(Router& router, CallId call);
  // Tells the routers that live of a change of the draft models.
  void Apply(const Swap& swap);
  // Checks, at the end of the run, that the verifiers have the heads that the operator wants.
  void CheckHeads();
  void Inject(const Fault& fault);
  void InjectAt(const Fault& fault, const std::shared_ptr<Process>& victim);
  void InjectAtRouter(const Fault& fault);
  // Starts the process again, as a supervisor does, unless another process took its place.
  void Restart(const std::shared_ptr<Process>& victim, bool other_vocabulary);
  void TellToStop(const std::shared_ptr<Process>& victim, double seconds);
  void Heal();
  bool IsQuiet() const;
  void Step();
  void Trace(const std::function<std::string()>& line);
  void Digest(uint64_t value) { digest_ = (digest_ ^ value) * 0x100000001B3ULL; }

  const Scenario* scenario_;
  PlantedBug bug_;
  std::string* trace_;
  testing::ToyTokenizer tokenizer_;
  testing::ToyCorpus corpus_;  // the scenario's
  SeededRandom random_;
  std::vector<Event> events_;  // a heap
  std::vector<std::unique_ptr<Router>> routers_;
  std::vector<Pod> pods_;
  std::vector<std::shared_ptr<Stream>> streams_;
  std::map<CallId, Client> clients_;
  Checker checker_;

  double now_ = kStartTime;
  uint64_t last_event_ = 0;
  StreamId last_stream_ = 0;
  CallId last_call_ = 0;
  int num_under_way_ = 0;
  size_t num_arrived_ = 0;
  bool healed_ = false;
  std::optional<Worker> spoil_next_;  // worker that answers its next batch wrongly
  uint64_t digest_ = 0xCBF29CE484222325ULL;
  int num_steps_ = 0;
};

RunResult RunSeed(uint64_t seed, PlantedBug bug = PlantedBug::kNone, std::string* trace = nullptr);

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_WORLD_H_
