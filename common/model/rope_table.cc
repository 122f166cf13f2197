#include "common/model/rope_table.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tandem {
namespace {

// Scales a frequency for Llama 3.1. Wavelengths beyond the old context are stretched, short
// wavelengths are kept, and a ramp lies in between (transformers, _compute_llama3_parameters).
double ScaleFrequency(double frequency, const Llama3RopeScaling& scaling) {
  const double wavelength = 2 * std::numbers::pi / frequency;
  const double turns = scaling.original_max_position_embeddings / wavelength;
  const double kept = std::clamp(
      (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor), 0.0,
      1.0);
  return (1 - kept) * frequency / scaling.factor + kept * frequency;
}

}  // namespace

RopeTable::RopeTable(const ModelDescription& model)
    : max_positions_(model.max_position_embeddings) {
  const RopeDescription& rope = model.attention.rope;
  const size_t head_size = model.attention.head_size;
  for (size_t i = 0; i < head_size / 2; ++i) {
    const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_size);
    double frequency = std::pow(rope.theta, -exponent);
    if (rope.scaling) frequency = ScaleFrequency(frequency, *rope.scaling);
    frequencies_.push_back(frequency);
  }
}

void RopeTable::Reserve(size_t positions) {
  const size_t half = frequencies_.size();
  const size_t have = table_.size() / (2 * half);
  if (positions <= have) return;
  constexpr size_t kFewest = 256;
  const size_t want = std::max(positions, std::min(max_positions_, std::max(kFewest, 2 * have)));
  table_.resize(want * 2 * half);
  for (size_t position = have; position < want; ++position) {
    float* row = table_.data() + position * 2 * half;
    for (size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequencies_[i];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

}  // namespace tandem
