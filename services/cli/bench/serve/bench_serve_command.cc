#include "services/cli/bench/serve/bench_serve_command.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "common/status.h"
#include "services/cli/bench/bench_support.h"
#include "services/cli/bench/model_operations.h"
#include "services/cli/bench/serve/bench_serve_load.h"
#include "services/cli/bench/serve/bench_serve_report.h"
#include "services/cli/bench/serve/bench_serve_workload.h"
#include "services/cli/bench/serve/process_usage.h"
#include "services/cli/terminal/errors.h"

namespace tandem::cli {

namespace {

constexpr int kMaxSlots = 1024;     // largest number that the router allows
constexpr int kDefaultQueue = 256;  // the router's default
constexpr int kRequests = 4;
constexpr int kWarmUpRequests = 2;
// After this many runs a pair counts, however much processor time was stolen.
constexpr int kMaxRunsOfPair = 20;
// Distance between the request numbers of two pairs.
constexpr uint64_t kRunStride = uint64_t{1} << 32;

int Most(const std::vector<int>& values) { return *std::max_element(values.begin(), values.end()); }

// Gives a private server room for every client, unless the command line sets its size.
void SizeServer(BenchServeOptions& options) {
  const int clients = options.rates.empty() ? Most(options.clients) : Most({32});
  ServerOptions& server = options.session.server;
  // `emplace` keeps a value that the command line gave.
  server.handed_on.emplace("--max-slots", std::to_string(std::min(clients, kMaxSlots)));
  server.handed_on.emplace("--max-queue", std::to_string(std::max(clients, kDefaultQueue)));
}

class Measurement {
 public:
  Measurement(const BenchServeOptions& options, const Workload& workload, GenerationClient& client,
              Console& console)
      : options_(options),
        workload_(workload),
        client_(client),
        load_(client.address(), options.rates.empty() ? Most(options.clients) : kMaxSlots,
              client.security(), options.connections),
        console_(console) {
    for (const std::string& mode : options.modes) {
      const auto add = [&](int clients, double rate) {
        for (const std::string& drafting : options.drafting) {
          cells_.push_back({.clients = clients,
                            .rate = rate,
                            .mode = mode,
                            .drafting = drafting,
                            .result = {},
                            .cpu = {},
                            .runs = 0,
                            .set_aside = 0,
                            .ratios = {}});
        }
      };
      for (double rate : options.rates) add(0, rate);
      if (options.rates.empty()) {
        for (int clients : options.clients) add(clients, 0);
      }
    }
  }

  // Each pair runs all kinds of drafting with the same requests, one after the other. The order
  // changes from pair to pair, so that neither a slow drift of the machine nor a position in the
  // order favors one kind.
  std::vector<ServeCell> Run() {
    const size_t kinds = options_.drafting.size();
    Progress progress(static_cast<int>(cells_.size()) * options_.pairs, console_);
    for (size_t first = 0; first < cells_.size(); first += kinds) {
      for (size_t kind = 0; kind < kinds; ++kind) WarmUp(cells_[first + kind]);
      for (int pair = 0; pair < options_.pairs; ++pair) {
        for (int run = 1; !RunPair(first, pair, run == kMaxRunsOfPair, progress); ++run) {
        }
        if (client_.canceled()) return std::move(cells_);
      }
    }
    return std::move(cells_);
  }

 private:
  // Returns false if the pair must be run again. The decision is the same for all kinds of drafting
  // and does not look at their rates.
  bool RunPair(size_t first, int pair, bool last_run, Progress& progress) {
    const size_t kinds = options_.drafting.size();
    const auto begin = cells_.begin() + static_cast<std::ptrdiff_t>(first);
    const std::vector<ServeCell> before(begin, begin + static_cast<std::ptrdiff_t>(kinds));
    std::vector<double> rates(kinds);
    double most_stolen = 0;
    for (size_t turn = 0; turn < kinds; ++turn) {
      const size_t kind = (turn + static_cast<size_t>(pair)) % kinds;
      ServeCell& cell = cells_[first + kind];
      rates[kind] = RunOnce(cell, pair, progress);
      if (client_.canceled()) return true;
      most_stolen = std::max(most_stolen, StolenShare(before[kind].cpu, cell.cpu));
    }
    if (most_stolen > options_.most_stolen && !last_run) {
      std::copy(before.begin(), before.end(), begin);
      for (size_t kind = 0; kind < kinds; ++kind) ++cells_[first + kind].set_aside;
      progress.TakeBack(static_cast<int>(kinds));
      return false;
    }
    AddRatios(first, rates);
    return true;
  }

  LoadClient::Plan PlanOf(const ServeCell& cell, uint64_t run) const {
    return [this, &cell, run](uint64_t index) {
      return workload_.Plan(run * kRunStride + index, cell.mode, cell.drafting);
    };
  }

  // Each run has a tenant of its own, so that it does not find the prompts of another run in the
  // prefix cache.
  std::string NewTenant() { return absl::StrFormat("bench-%x-%d", process_, ++num_tenants_); }

  bool GoesOn() const { return !client_.canceled(); }

  void WarmUp(const ServeCell& cell) {
    const LoadStep step = {.clients = kWarmUpRequests,
                           .requests = kWarmUpRequests,
                           .seconds = options_.seconds,
                           .tenant = NewTenant()};
    LoadResult dropped;
    load_.Run(
        step, PlanOf(cell, static_cast<uint64_t>(options_.pairs)),
        [this](double) { return GoesOn(); }, &dropped);
  }

  double RunOnce(ServeCell& cell, int pair, Progress& progress) {
    LoadStep step = {.clients = cell.clients,
                     .rate = cell.rate,
                     .requests = options_.requests,
                     .seconds = options_.seconds,
                     .warm_up_seconds = options_.warm_up_seconds,
                     .seed = options_.seed + static_cast<uint64_t>(pair),
                     .tenant = NewTenant()};
    if (step.seconds == 0) {
      if (step.requests == 0) step.requests = kRequests;
      if (cell.clients > 0) step.requests *= cell.clients;
    }
    progress.Step(absl::StrFormat(
        "%s, %s, drafting %s%s",
        cell.clients > 0
            ? absl::StrFormat("%d client%s", cell.clients, cell.clients == 1 ? "" : "s")
            : absl::StrFormat("%g requests/s", cell.rate),
        cell.mode, cell.drafting,
        cell.set_aside > 0 ? absl::StrFormat(", %d set aside", cell.set_aside) : ""));
    std::optional<CpuSeconds> measured_from;
    step.on_measured = [this, &measured_from] { measured_from = options_.read_cpu(); };
    const double rate = load_.Run(
        step, PlanOf(cell, static_cast<uint64_t>(pair)),
        [&](double fraction) {
          progress.Within(fraction);
          return GoesOn();
        },
        &cell.result);
    if (!measured_from.has_value()) return 0;  // interrupted
    const CpuSeconds& before = *measured_from;
    const CpuSeconds after = options_.read_cpu();
    cell.cpu.own += after.own - before.own;
    cell.cpu.machine += after.machine - before.machine;
    cell.cpu.stolen += after.stolen - before.stolen;
    for (const auto& [name, seconds] : after.children) {
      const auto found = before.children.find(name);
      // A child that was restarted meanwhile counts from its start.
      const double earlier =
          found != before.children.end() && found->second <= seconds ? found->second : 0;
      cell.cpu.children[name] += seconds - earlier;
    }
    ++cell.runs;
    return rate;
  }

  void AddRatios(size_t first, const std::vector<double>& rates) {
    const auto off = std::find(options_.drafting.begin(), options_.drafting.end(), "off");
    if (off == options_.drafting.end()) return;
    const double plain = rates[static_cast<size_t>(off - options_.drafting.begin())];
    for (size_t kind = 0; kind < rates.size(); ++kind) {
      if (options_.drafting[kind] != "off" && plain > 0 && rates[kind] > 0) {
        cells_[first + kind].ratios.push_back(rates[kind] / plain);
      }
    }
  }

  const BenchServeOptions& options_;
  const Workload& workload_;
  GenerationClient& client_;
  LoadClient load_;
  Console& console_;
  std::vector<ServeCell> cells_;
  const unsigned process_ = std::random_device()();
  int num_tenants_ = 0;
};

}  // namespace

int BenchServe(BenchServeOptions options, const std::string& command_line, Console& console) {
  const auto prompts = ReadPrompts(options.prompts);
  if (!prompts.ok()) return PrintError(prompts.status(), console);
  std::ofstream json_file;
  if (!options.json.empty()) {
    json_file.open(options.json);
    if (!json_file) {
      return PrintError(InvalidArgument("--json: cannot write " + options.json), console);
    }
  }
  SizeServer(options);
  auto session = ServerSession::Open(options.session, console);
  if (!session.ok()) return PrintError(session.status(), console);
  GenerationClient& client = (*session)->client();
  const auto info = client.GetServerInfo();
  if (!info.ok()) return PrintServerError(info.status(), console);
  const bool drafts = std::any_of(options.drafting.begin(), options.drafting.end(),
                                  [](const std::string& kind) { return kind != "off"; });
  if (drafts && !info->drafter_attached()) {
    return PrintServerError(
        FailedPrecondition("the server has no drafter: only --drafting off can be measured"),
        console);
  }
  auto corpus = Workload::Tokenize(*prompts, client);
  if (!corpus.ok()) return PrintServerError(corpus.status(), console);
  const auto workload = Workload::Create(options, *std::move(corpus), info->max_context_tokens());
  if (!workload.ok()) return PrintError(workload.status(), console);

  const std::vector<ServeCell> cells = Measurement(options, *workload, client, console).Run();
  ServeContext context = {
      .server = *info,
      .hardware = Hardware(),
      .command_line = command_line,
      .cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
      .target_weights = std::nullopt,
      .interrupted = client.canceled()};
  if (const ModelFolders& models = (*session)->models(); !models.target.folder.empty()) {
    const auto weights = WeightsPerToken(models.target.folder);
    if (weights.ok()) context.target_weights = *weights;
  }
  console.out << RenderServeTable(cells, context,
                                  Palette(WantsColor(options.color, console.out_is_terminal)))
              << std::flush;
  if (json_file.is_open()) {
    json_file << ServeToJson(cells, context).dump(2) << "\n";
    json_file.close();
    if (!json_file) {
      return PrintServerError(Unavailable("--json: writing " + options.json + " failed"), console);
    }
  }
  return context.interrupted ? kExitInterrupted : kExitOk;
}

}  // namespace tandem::cli
