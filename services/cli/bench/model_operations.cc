#include "services/cli/bench/model_operations.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "common/status.h"

namespace tandem::cli {

absl::StatusOr<double> WeightsPerToken(const std::filesystem::path& model_folder) {
  const std::filesystem::path file = model_folder / "config.json";
  std::ifstream stream(file);
  const nlohmann::json config = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return InvalidArgument(file.string() + ": is not a JSON object");
  const auto number = [&config](const std::string& field, double otherwise) {
    const auto value = config.find(field);
    return value != config.end() && value->is_number() ? value->get<double>() : otherwise;
  };
  const double hidden = number("hidden_size", 0);
  const double heads = number("num_attention_heads", 0);
  const double layers = number("num_hidden_layers", 0);
  const double inner = number("intermediate_size", 0);
  const double vocabulary = number("vocab_size", 0);
  if (hidden <= 0 || heads <= 0 || layers <= 0 || inner <= 0 || vocabulary <= 0) {
    return InvalidArgument(file.string() +
                           ": lacks one of hidden_size, num_attention_heads, "
                           "num_hidden_layers, intermediate_size, vocab_size");
  }
  const double head_size = number("head_dim", hidden / heads);
  const double kv_heads = number("num_key_value_heads", heads);
  const double attention = 2 * hidden * heads * head_size + 2 * hidden * kv_heads * head_size;
  return layers * (attention + 3 * hidden * inner) + hidden * vocabulary;
}

}  // namespace tandem::cli
