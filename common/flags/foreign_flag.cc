#include "common/flags/foreign_flag.h"

#include "absl/strings/str_cat.h"

namespace tandem {

namespace {

constexpr std::string_view kOneDevice = "a model runs on one device";
constexpr std::string_view kBothInOne = "HOST:PORT";
constexpr std::string_view kFolder = "a folder with config.json and safetensors";

constexpr ForeignFlag kForeignFlags[] = {
    {"--model", "--target", kFolder},
    {"--model-path", "--target", kFolder},
    {"-m", "--target", kFolder},
    {"--model-draft", "--draft", kFolder},
    {"-md", "--draft", kFolder},
    {"--speculative-config", "--draft", "--draft-length sets the number of tokens"},
    {"--speculative-model", "--draft", kFolder},
    {"--speculative-draft-model-path", "--draft", kFolder},
    {"--num-speculative-tokens", "--draft-length", "auto measures what pays"},
    {"--speculative-num-draft-tokens", "--draft-length", "auto measures what pays"},
    {"--draft-max", "--draft-length", "auto measures what pays"},
    {"--draft-min", "--draft-length", "auto measures what pays"},
    {"--draft-p-min", "", "lengths are chosen before the draw, so that the output stays exact"},
    {"--host", "--listen", kBothInOne},
    {"--port", "--listen", kBothInOne},
    {"--max-model-len", "--max-context", ""},
    {"--context-length", "--max-context", ""},
    {"--ctx-size", "--max-context", ""},
    {"-c", "--max-context", ""},
    {"--max-num-seqs", "--max-slots", ""},
    {"--max-running-requests", "--max-slots", ""},
    {"--parallel", "--max-slots", ""},
    {"-np", "--max-slots", ""},
    {"-t", "--threads", ""},
    {"--gpu-memory-utilization", "--gpu-memory-bytes", "bytes, not a share"},
    {"--mem-fraction-static", "--gpu-memory-bytes", "bytes, not a share"},
    {"--n-gpu-layers", "--backend", "cuda puts all layers on the GPU"},
    {"-ngl", "--backend", "cuda puts all layers on the GPU"},
    {"--kv-cache-memory-bytes", "--kv-cache-bytes", ""},
    {"--enable-prefix-caching", "", "the prefix cache is always on"},
    {"--max-num-batched-tokens", "--step-rows", ""},
    {"--batch-size", "--step-rows", ""},
    {"--api-key", "--token-file", "a file with the token"},
    {"--ssl-certfile", "--tls-certificate", ""},
    {"--ssl-cert-file", "--tls-certificate", ""},
    {"--ssl-keyfile", "--tls-key", ""},
    {"--ssl-key-file", "--tls-key", ""},
    {"--metrics", "--admin", kBothInOne},
    {"--tensor-parallel-size", "", kOneDevice},
    {"--tp-size", "", kOneDevice},
    {"-tp", "", kOneDevice},
    {"--tensor-split", "", kOneDevice},
    {"-ts", "", kOneDevice},
    {"--quantization", "", "weights are BF16, F16 or F32"},
    {"--dtype", "", "weights are used in the type that they are stored in"},
    {"--n-predict", "--max-tokens", ""},
    {"--predict", "--max-tokens", ""},
    {"--max-new-tokens", "--max-tokens", ""},
    {"--temp", "--temperature", ""},
    {"--repeat-penalty", "--repetition-penalty", "over the prompt and the output"},
    {"--n-probs", "--logprobs", ""},
    {"--file", "--prompt-file", ""},
    {"-f", "--prompt-file", ""},
    {"--prompt", "PROMPT", "an argument without a flag"},
    {"-p", "PROMPT", "an argument without a flag"},
};

}  // namespace

std::span<const ForeignFlag> ForeignFlags() { return kForeignFlags; }

std::string ForeignFlagHint(std::string_view word, Program program) {
  const std::string guide = "see docs/guides/coming-from.md";
  for (const ForeignFlag& foreign : kForeignFlags) {
    if (foreign.name != word) continue;
    const std::string comment(foreign.comment);
    if (foreign.flag.empty()) return absl::StrCat("; there is none: ", comment, " (", guide, ")");
    // A flag of another program would be of no help.
    const bool is_argument = !foreign.flag.starts_with("-");
    if (is_argument ? program != Program::kGenerate : FindFlag(foreign.flag, program) == nullptr) {
      return "";
    }
    return absl::StrCat("; here it is ", std::string(foreign.flag), " (", comment,
                        comment.empty() ? "" : "; ", guide, ")");
  }
  return "";
}

}  // namespace tandem
