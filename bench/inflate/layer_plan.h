// Where the parts of a small model lie in a large one.
#ifndef TANDEM_BENCH_INFLATE_LAYER_PLAN_H_
#define TANDEM_BENCH_INFLATE_LAYER_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/inflate/inflated_model.h"
#include "bench/inflate/inflated_tensor.h"
#include "common/model/linear.h"
#include "common/model/model_description.h"
#include "common/model/model_weights.h"

namespace tandem {

// Collects the tensors of decoder layers, norms and matrices, as inflated_model.h explains.
class LayerPlan {
 public:
  // `config` describes the layers. Both arguments must outlive the plan.
  LayerPlan(const ModelDescription& config, const InflatedShape& shape);

  // Adds a layer whose tensors begin with `prefix`. Null: an added layer, which contributes
  // nothing. Queries, keys and values are products of `inputs` hidden rows side by side.
  void AddLayer(const std::string& prefix, const LayerWeights* layer, size_t inputs = 1);
  InflatedTensor& AddMatrix(const std::string& name, const Linear* source,
                            const std::vector<int64_t>& rows, const std::vector<int64_t>& cols);
  InflatedTensor& AddVector(const std::string& name, const std::vector<float>* source,
                            const std::vector<int64_t>& cols);
  InflatedTensor& AddNorm(const std::string& name, const std::vector<float>* source);

  const std::vector<int64_t>& hidden() const { return hidden_; }  // places of hidden dimensions
  // Returns the places of the dimensions of `rows` hidden rows side by side.
  std::vector<int64_t> Joined(size_t rows) const;
  std::vector<InflatedTensor> Take() { return std::move(tensors_); }

 private:
  bool HasBias(const Linear LayerWeights::*linear) const;

  const ModelDescription& config_;
  const InflatedShape& shape_;
  std::vector<int64_t> query_rows_;
  std::vector<int64_t> key_rows_;
  std::vector<int64_t> value_rows_;
  std::vector<int64_t> mixed_cols_;
  std::vector<int64_t> hidden_;
  std::vector<int64_t> inner_;
  double norm_scale_ = 1;
  double query_scale_ = 1;
  std::vector<InflatedTensor> tensors_;
};

}  // namespace tandem

#endif  // TANDEM_BENCH_INFLATE_LAYER_PLAN_H_
