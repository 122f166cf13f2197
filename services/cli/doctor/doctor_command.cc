#include "services/cli/doctor/doctor_command.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/model/checkpoint/foreign_model.h"
#include "common/model/model_description.h"
#include "common/status.h"
#include "services/cli/doctor/memory_speed.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"
#include "services/cli/terminal/table.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

constexpr double kReadSeconds = 1;
// What each thread reads, and the share of the free memory that all threads read at most. The
// caches of a processor have a few MiB for each of its threads.
constexpr uint64_t kReadBytesPerThread = uint64_t{256} << 20;
constexpr double kReadShare = 0.25;
// A container whose memory is full of cached files has little free memory, but can free it.
constexpr uint64_t kLeastReadBytes = uint64_t{16} << 20;
// What docs/benchmarks.md measured on processors: the share of the reading speed that decoding
// reaches, the messages to a worker and back, and the time of a further row.
constexpr double kReachedShare = 0.8;
constexpr double kExchangeSeconds = 0.00012;
constexpr double kExtraRowFraction = 0.03;
constexpr double kAssumedAlpha = 0.7;  // for a pair that is not known
constexpr uint64_t kFewOpenFiles = 4096;

std::string Gibibytes(uint64_t bytes) {
  return absl::StrFormat("%.1f GiB", static_cast<double>(bytes) / (1 << 30));
}

uint64_t WeightBytes(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() == ".safetensors") {
      const uint64_t of_file = entry.file_size(error);
      if (!error) bytes += of_file;
    }
  }
  return bytes;
}

uint64_t ReadBytesPerThread(const MachineReport& machine, int num_threads) {
  const double share = kReadShare * static_cast<double>(machine.available_bytes) / num_threads;
  return std::clamp(static_cast<uint64_t>(share), kLeastReadBytes, kReadBytesPerThread);
}

absl::StatusOr<size_t> VocabularySize(const fs::path& folder) {
  TANDEM_RETURN_IF_ERROR(CheckModelFolder(folder));
  TANDEM_ASSIGN_OR_RETURN(const ModelDescription model, ModelDescription::Load(folder));
  return model.vocabulary_size;
}

// Weights that lie in the caches are read faster than those in memory. So a small pair is judged by
// how fast as many bytes are read.
double PairBytesPerSecond(const ModelPair& pair, double bytes_per_second, int num_threads) {
  const uint64_t bytes_per_thread = pair.target_bytes / static_cast<uint64_t>(num_threads);
  if (!pair.is_users || bytes_per_thread >= kLeastReadBytes) return bytes_per_second;
  constexpr double kSmallReadSeconds = 0.1;
  constexpr uint64_t kPage = 4096;
  return std::max(bytes_per_second, MeasureReadBytesPerSecond(num_threads, kSmallReadSeconds,
                                                              std::max(bytes_per_thread, kPage)));
}

absl::StatusOr<std::vector<ModelPair>> PairsOf(const DoctorOptions& options) {
  std::vector<ModelPair> pairs;
  if (!options.target.empty()) {
    TANDEM_ASSIGN_OR_RETURN(const size_t of_target, VocabularySize(options.target));
    TANDEM_ASSIGN_OR_RETURN(const size_t of_draft, VocabularySize(options.draft));
    if (of_target != of_draft) {
      return InvalidArgument("--draft: " + options.draft +
                             " has another vocab_size in its config.json than --target; a drafter "
                             "must have the vocabulary of its target");
    }
    pairs.push_back({options.target, options.draft, WeightBytes(options.target),
                     WeightBytes(options.draft), kAssumedAlpha, /*is_users=*/true});
  }
  const std::vector<ModelPair> known = KnownPairs();
  pairs.insert(pairs.end(), known.begin(), known.end());
  return pairs;
}

std::string Row(const std::string& label, const std::string& text, const Palette& palette) {
  return "  " + palette.Dim(absl::StrFormat("%-12s", label)) + text + "\n";
}

std::string RenderMachine(const MachineReport& machine, double bytes_per_second,
                          const Palette& palette) {
  std::string text = palette.Bold("This machine") + "\n";
  text +=
      Row("processor",
          absl::StrCat(machine.processor.empty() ? "not known" : machine.processor, ", ",
                       machine.num_cores, machine.num_cores == 1 ? " core" : " cores", ", ",
                       machine.instructions.empty() ? "no vector instructions that are used"
                                                    : absl::StrJoin(machine.instructions, ", ")),
          palette);
  text += Row("memory",
              absl::StrCat(Gibibytes(machine.memory_bytes), ", of which ",
                           Gibibytes(machine.available_bytes), " are free; read at ",
                           absl::StrFormat("%.1f GB/s", 1e-9 * bytes_per_second)),
              palette);
  text += Row("GPU",
              machine.gpus.empty() ? "none that has NVIDIA's driver: the CPU backend is used"
                                   : absl::StrCat(absl::StrJoin(machine.gpus, ", "), "; MPS ",
                                                  machine.has_mps ? "runs" : "does not run"),
              palette);
  text +=
      Row("limits",
          absl::StrCat(machine.max_open_files, " open files; ",
                       machine.max_locked_bytes == ~uint64_t{0}
                           ? "memory can be locked"
                           : absl::StrCat(machine.max_locked_bytes >> 10, " KiB can be locked")),
          palette);
  return text;
}

std::string RenderPairs(const std::vector<PairAdvice>& pairs, const Palette& palette) {
  std::string text =
      "\n" + palette.Bold("Pairs on this machine, one stream, BF16, expected and not measured") +
      "\n" +
      absl::StrFormat("  %-16s %-14s %7s %12s %5s %9s\n", "target", "draft", "weights", "plain",
                      "K", "speedup");
  for (const PairAdvice& advice : pairs) {
    const uint64_t bytes = advice.pair.target_bytes + advice.pair.draft_bytes;
    const auto bytes_of_pair = static_cast<double>(bytes);
    text += absl::StrFormat(
        "  %-16s %-14s %7s ", advice.pair.is_users ? "your target" : advice.pair.target,
        advice.pair.is_users ? "your draft" : advice.pair.draft,
        bytes < 1'000'000'000 ? absl::StrFormat("%.0f MB", 1e-6 * bytes_of_pair)
                              : absl::StrFormat("%.1f GB", 1e-9 * bytes_of_pair));
    if (!advice.fits) {
      text += palette.Dim("does not fit into the memory") + "\n";
      continue;
    }
    text += absl::StrFormat("%6.1f tok/s %5s ", 1 / advice.plain_seconds,
                            advice.draft_length == 0 ? "-" : absl::StrCat(advice.draft_length));
    const std::string speedup = absl::StrFormat("%8.2f×", advice.speedup);
    text += (advice.draft_length == 0 ? palette.Dim("no gain") : palette.Good(speedup)) + "\n";
  }
  text += palette.Dim(absl::StrFormat(
              "  Assumed: α 0.65 to 0.75, decoding at %.0f %% of the reading speed, %.2f ms for "
              "messages to a worker and back. Measure with: tandem bench",
              100 * kReachedShare, 1e3 * kExchangeSeconds)) +
          "\n";
  return text;
}

nlohmann::json ToJson(const MachineReport& machine, double bytes_per_second,
                      const std::vector<PairAdvice>& pairs) {
  nlohmann::json list = nlohmann::json::array();
  for (const PairAdvice& advice : pairs) {
    list.push_back({{"target", advice.pair.target},
                    {"draft", advice.pair.draft},
                    {"weight_bytes", advice.pair.target_bytes + advice.pair.draft_bytes},
                    {"assumed_alpha", advice.pair.alpha},
                    {"fits", advice.fits},
                    {"plain_tokens_per_second", 1 / advice.plain_seconds},
                    {"draft_length", advice.draft_length},
                    {"expected_speedup", advice.speedup}});
  }
  return {{"processor", machine.processor},
          {"instructions", machine.instructions},
          {"cores", machine.num_cores},
          {"memory_bytes", machine.memory_bytes},
          {"available_bytes", machine.available_bytes},
          {"read_bytes_per_second", bytes_per_second},
          {"gpus", machine.gpus},
          {"mps", machine.has_mps},
          {"max_open_files", machine.max_open_files},
          {"pairs", list},
          {"advice", Advice(machine, pairs)}};
}

void BindDoctor(FlagParser& parser, DoctorOptions& options) {
  parser.Bind("--target", &options.target);
  parser.Bind("--draft", &options.draft);
  parser.Bind("--json", &options.json);
  BindColor(parser, options.color);
}

std::string CheckDoctor(const FlagParser&, DoctorOptions& options) {
  return options.target.empty() == options.draft.empty()
             ? ""
             : "give both --target and --draft, or neither";
}

// Says what to do with the pair that the user named.
std::string AdviceForUser(const PairAdvice& advice) {
  const ModelPair& pair = advice.pair;
  const std::string folders = absl::StrCat("--target ", pair.target, " --draft ", pair.draft);
  if (!advice.fits) return "Your pair does not fit into this memory beside its KV cache.";
  if (advice.draft_length == 0) {
    return absl::StrCat(
        "Your pair is not expected to gain by drafts: its draft takes too much time beside "
        "its target. Measure it: tandem bench ",
        folders);
  }
  return absl::StrFormat(
      "Your pair is expected to decode %.2f times as fast as its target alone, if %.0f %% of the "
      "tested tokens are accepted. Serve it: tandem serve %s. Measure it: tandem bench %s",
      advice.speedup, 100 * pair.alpha, folders, folders);
}

}  // namespace

std::vector<std::string> Advice(const MachineReport& machine,
                                const std::vector<PairAdvice>& pairs) {
  std::vector<std::string> advice;
  const PairAdvice* best = nullptr;
  for (const PairAdvice& pair : pairs) {
    if (pair.pair.is_users) advice.push_back(AdviceForUser(pair));
  }
  const bool asks_for_own = !advice.empty();
  for (const PairAdvice& pair : pairs) {
    if (pair.fits && pair.draft_length > 0 && (best == nullptr || pair.speedup > best->speedup)) {
      best = &pair;
    }
  }
  if (asks_for_own) {
    // The known pairs are in the table.
  } else if (best != nullptr) {
    advice.push_back(absl::StrFormat(
        "Serve %s with the drafter %s: expected %.2f× plain decoding. Leave --draft-length at "
        "auto; it measures what pays.",
        best->pair.target, best->pair.draft, best->speedup));
  } else {
    advice.emplace_back("No pair of the table fits into this memory and gains by drafts.");
  }
  if (!machine.gpus.empty() && !machine.has_mps) {
    advice.emplace_back(
        "Start NVIDIA's MPS (nvidia-cuda-mps-control -d): without it, the two workers take turns "
        "on the GPU (docs/gpu.md).");
  }
  const auto has = [&](const char* instructions) {
    return std::find(machine.instructions.begin(), machine.instructions.end(), instructions) !=
           machine.instructions.end();
  };
  if (has("AVX-512") && has("BF16")) {
    advice.emplace_back(
        "With --activation-precision bf16, prompts take little more than half of the time. The "
        "output is then that of BF16 inference, and not that of F32.");
  }
  if (!has("AVX-512") && !has("AVX2") && !has("NEON")) {
    advice.emplace_back("This processor has no AVX2: passes over prompts will be slow.");
  }
  if (machine.max_open_files < kFewOpenFiles) {
    advice.push_back(absl::StrCat("Raise the limit of open files (ulimit -n) from ",
                                  machine.max_open_files, ": each client connection takes one."));
  }
  return advice;
}

int Doctor(const DoctorOptions& options, Console& console) {
  const auto pairs = PairsOf(options);
  if (!pairs.ok()) return PrintError(pairs.status(), console);
  const MachineReport machine = InspectMachine();
  if (!options.json) console.err << "Reading memory for a second …" << std::endl;
  const int num_threads = std::max(machine.num_cores, 1);
  const double bytes_per_second = MeasureReadBytesPerSecond(
      num_threads, kReadSeconds, ReadBytesPerThread(machine, num_threads));
  if (bytes_per_second == 0) {
    return PrintError(absl::ResourceExhaustedError("there is no memory for the measurement"),
                      console);
  }
  std::vector<PairAdvice> advices;
  for (const ModelPair& pair : *pairs) {
    advices.push_back(
        AdvisePair(pair,
                   {.bytes_per_second =
                        kReachedShare * PairBytesPerSecond(pair, bytes_per_second, num_threads),
                    .exchange_seconds = kExchangeSeconds,
                    .extra_row_fraction = kExtraRowFraction},
                   machine.available_bytes));
  }
  if (options.json) {
    console.out << ToJson(machine, bytes_per_second, advices).dump(2) << std::endl;
    return kExitOk;
  }
  const Palette palette(WantsColor(options.color, console.out_is_terminal));
  console.out << RenderMachine(machine, bytes_per_second, palette) << RenderPairs(advices, palette)
              << "\n"
              << palette.Bold("What to do") << "\n";
  for (const std::string& line : Advice(machine, advices)) console.out << "  " << line << "\n";
  console.out << std::flush;
  return kExitOk;
}

Parsed<DoctorOptions> ParseDoctor(std::vector<std::string> arguments) {
  return ParseOptions<DoctorOptions>(Program::kDoctor,
                                     "Says what this machine has, which pair of models would pay "
                                     "on it, and what to set. It reads\n"
                                     "memory for a second to measure its speed.",
                                     std::move(arguments), BindDoctor, CheckDoctor);
}

}  // namespace tandem::cli
