#include "common/model/cuda/check/check_products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/attention.h"
#include "kernels/matmul.h"
#include "kernels/matmul_bf16/matmul_bf16_cuda.h"
#include "kernels/matmul_bf16/tiles.h"
#include "kernels/swiglu.h"

namespace tandem {
namespace product_check {
namespace {

// Some of the slices into which kernels cut the features have two steps, and one has a step that is
// not full.
constexpr size_t kInFeatures = 648;
constexpr size_t kLeastOutFeatures = 160;
// Numbers of rows for which the kernel for few rows has different thread blocks. Together, the
// kernel for many rows computes them.
constexpr std::array<size_t, 4> kFewRows = {1, 9, 20, 36};
constexpr size_t kAllRows = 66;
constexpr std::array<size_t, 2> kBoth = {kAllRows, 30};
constexpr size_t kPages = 2;  // hold the rows, and some before them
constexpr size_t kFirstCacheRow = 50;

class ProductCheck {
 public:
  ProductCheck(const DeviceInfo& device, const KernelSettings& settings, CheckMemory& memory)
      : device_(device), settings_(settings), memory_(memory) {}

  static size_t NumHeads(const KernelSettings& settings) {
    const size_t wanted = (kLeastOutFeatures + settings.head_size - 1) / settings.head_size;
    return std::max<size_t>(wanted, 3) - 2;  // there is one KV head
  }
  static size_t OutFeatures(const KernelSettings& settings) {
    return (NumHeads(settings) + 2) * settings.head_size;
  }
  static size_t PageElements(const KernelSettings& settings) {
    return 2 * kKeyBlock * settings.head_size;
  }
  // From one row of the gate's result to the next.
  static size_t InnerStride(const KernelSettings& settings) {
    return (OutFeatures(settings) / 2 + 7) / 8 * 8;
  }

  // Returns the bytes of device memory that the check takes.
  static size_t Bytes(const KernelSettings& settings);

  absl::Status Prepare();
  absl::Status CheckRows();
  absl::Status CheckReference();
  absl::Status CheckTiles();
  absl::Status CheckGate();
  absl::Status PrepareRope();
  absl::Status CheckRope();

 private:
  size_t NumOut() const { return OutFeatures(settings_); }
  // Returns the first rows' operands.
  MatMulArgs First(size_t rows) const {
    MatMulArgs args = product_;
    args.rows = rows;
    return args;
  }
  absl::Status SpoilOut() { return memory_.Spoil(product_.out, kAllRows * NumOut()); }
  absl::StatusOr<std::vector<float>> Out(size_t rows) {
    return memory_.Download<float>(product_.out, rows * NumOut());
  }
  // Returns all parts of the gated rows, after the product and the gate, or after both in one.
  absl::StatusOr<std::vector<uint16_t>> Gated(size_t rows, bool at_once);
  // What the product and RoPE leave, one after the other or in one.
  struct Turned {
    std::vector<float> queries;
    std::vector<uint16_t> pages;
  };
  absl::StatusOr<Turned> Turn(size_t rows, bool at_once);

  const DeviceInfo& device_;
  const KernelSettings& settings_;
  CheckMemory& memory_;
  CheckNumbers numbers_{1};
  std::vector<float> x_, bias_;
  std::vector<uint16_t> weights_;
  MatMulArgs product_;
  Bf16Rows gated_;
  DeviceRopeAndStoreArgs rope_;
  uint16_t* pool_ = nullptr;
  std::vector<float> want_;  // the product of all rows
};

absl::Status ProductCheck::Prepare() {
  const size_t count = kAllRows * kInFeatures;
  x_ = settings_.num_parts == 1 ? numbers_.UniformBf16(count) : numbers_.Uniform(count);
  weights_ = Bf16Parts(numbers_.Uniform(NumOut() * kInFeatures), 1);
  bias_ = numbers_.Uniform(NumOut());
  product_ = {
      .rows = kAllRows,
      .dtype = DType::kBF16,
      .out_features = NumOut(),
      .in_features = kInFeatures,
      .out_stride = NumOut(),
      .x_bf16 = {
          .stride = kInFeatures, .part_stride = x_.size(), .num_parts = settings_.num_parts}};
  TANDEM_ASSIGN_OR_RETURN(product_.w, memory_.Upload(weights_));
  TANDEM_ASSIGN_OR_RETURN(product_.bias, memory_.Upload(bias_));
  TANDEM_ASSIGN_OR_RETURN(product_.out, memory_.Take<float>(kAllRows * NumOut()));
  TANDEM_ASSIGN_OR_RETURN(product_.x_bf16.parts,
                          memory_.Upload(Bf16Parts(x_, settings_.num_parts)));
  TANDEM_RETURN_IF_ERROR(SpoilOut());
  TANDEM_RETURN_IF_ERROR(MatMul(product_, memory_.stream()));
  TANDEM_ASSIGN_OR_RETURN(want_, Out(kAllRows));
  return absl::OkStatus();
}

absl::Status ProductCheck::CheckRows() {
  TANDEM_RETURN_IF_ERROR(SpoilOut());
  size_t first = 0;
  for (const size_t rows : kFewRows) {
    MatMulArgs few = First(rows);
    few.x_bf16 = product_.x_bf16.FromRow(first);
    few.out += first * NumOut();
    TANDEM_RETURN_IF_ERROR(MatMul(few, memory_.stream()));
    first += rows;
  }
  TANDEM_ASSIGN_OR_RETURN(const std::vector<float> got, Out(kAllRows));
  return CheckSame("MatMul with BF16 weights, of few rows and of many", got, want_, NumOut());
}

absl::Status ProductCheck::CheckReference() {
  std::vector<float> widened(weights_.size());
  std::transform(weights_.begin(), weights_.end(), widened.begin(), WidenBf16);
  std::vector<float> reference(want_.size());
  MatMulArgs args = product_;
  args.x = x_.data();
  args.x_stride = kInFeatures;
  args.w = widened.data();
  args.dtype = DType::kF32;
  args.bias = bias_.data();
  args.out = reference.data();
  MatMulReference(args);
  // Matrix units cut sums off where other units round them.
  const double tolerance = 3.6e-6 * std::sqrt(static_cast<double>(kInFeatures)) + 1e-6;
  return CheckNear("MatMul with BF16 weights, on the GPU and on the host", want_, reference,
                   NumOut(), tolerance);
}

absl::Status ProductCheck::CheckTiles() {
  if (settings_.num_parts > 1) return absl::OkStatus();  // all tiles are of one kind
  for (const bf16_product::Tile tile : bf16_product::kTiles) {
    if (bf16_product::SharedBytes(tile) > device_.max_shared_bytes) continue;
    TANDEM_RETURN_IF_ERROR(SpoilOut());
    TANDEM_RETURN_IF_ERROR(bf16_product::MatMulInTiles(tile, product_, memory_.stream()));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<float> got, Out(kAllRows));
    const std::string what = absl::StrCat("MatMul with BF16 weights, in tiles of kind ",
                                          static_cast<int>(tile), " and others");
    TANDEM_RETURN_IF_ERROR(CheckSame(what, got, want_, NumOut()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint16_t>> ProductCheck::Gated(size_t rows, bool at_once) {
  const size_t count = static_cast<size_t>(gated_.num_parts) * gated_.part_stride;
  const size_t inner = NumOut() / 2;
  TANDEM_RETURN_IF_ERROR(memory_.Spoil(gated_.parts, count));
  if (at_once) {
    TANDEM_RETURN_IF_ERROR(MatMulSwiGlu(First(rows), gated_, memory_.stream()));
  } else {
    TANDEM_RETURN_IF_ERROR(MatMul(First(rows), memory_.stream()));
    TANDEM_RETURN_IF_ERROR(SwiGlu({.gate = product_.out,
                                   .gate_stride = NumOut(),
                                   .up = product_.out + inner,
                                   .up_stride = NumOut(),
                                   .rows = rows,
                                   .size = inner,
                                   .out_bf16 = gated_},
                                  memory_.stream()));
  }
  return memory_.Download<uint16_t>(gated_.parts, count);
}

absl::Status ProductCheck::CheckGate() {
  gated_ = {.stride = InnerStride(settings_),
            .part_stride = kAllRows * InnerStride(settings_),
            .num_parts = settings_.num_parts};
  TANDEM_ASSIGN_OR_RETURN(gated_.parts,
                          memory_.Take<uint16_t>(gated_.num_parts * gated_.part_stride));
  for (const size_t rows : kBoth) {
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint16_t> want, Gated(rows, false));
    TANDEM_ASSIGN_OR_RETURN(const std::vector<uint16_t> got, Gated(rows, true));
    const std::string what = absl::StrCat("MatMulSwiGlu and its two steps, ", rows, " rows");
    TANDEM_RETURN_IF_ERROR(CheckSame(what, got, want, gated_.stride));
  }
  return absl::OkStatus();
}

absl::Status ProductCheck::PrepareRope() {
  std::vector<int32_t> cache_rows(kAllRows);
  for (size_t row = 0; row < kAllRows; ++row) {
    cache_rows[row] = static_cast<int32_t>(kFirstCacheRow + row);
  }
  rope_ = {.kv = {.dtype = DType::kBF16,
                  .page_stride = PageElements(settings_),
                  .num_kv_heads = 1,
                  .head_size = settings_.head_size},
           .rows = {.table_stride = kPages},
           .qkv = product_.out,
           .qkv_stride = NumOut(),
           .num_heads = NumHeads(settings_)};
  TANDEM_ASSIGN_OR_RETURN(pool_, memory_.Take<uint16_t>(kPages * PageElements(settings_)));
  rope_.kv.pool = pool_;
  TANDEM_ASSIGN_OR_RETURN(rope_.rows.page_tables, memory_.Upload<int32_t>({1, 0}));
  TANDEM_ASSIGN_OR_RETURN(rope_.rows.sequences, memory_.Upload(std::vector<int32_t>(kAllRows, 0)));
  TANDEM_ASSIGN_OR_RETURN(rope_.rows.cache_rows, memory_.Upload(cache_rows));
  rope_.positions = rope_.rows.cache_rows;
  const size_t positions = kFirstCacheRow + kAllRows;
  TANDEM_ASSIGN_OR_RETURN(rope_.table,
                          memory_.Upload(numbers_.Uniform(positions * settings_.head_size)));
  return absl::OkStatus();
}

absl::StatusOr<ProductCheck::Turned> ProductCheck::Turn(size_t rows, bool at_once) {
  const size_t page_elements = kPages * PageElements(settings_);
  TANDEM_RETURN_IF_ERROR(SpoilOut());
  TANDEM_RETURN_IF_ERROR(memory_.Spoil(pool_, page_elements));
  rope_.rows.rows = rows;
  if (at_once) {
    TANDEM_RETURN_IF_ERROR(MatMulRopeAndStoreKv(First(rows), rope_, memory_.stream()));
  } else {
    TANDEM_RETURN_IF_ERROR(MatMul(First(rows), memory_.stream()));
    TANDEM_RETURN_IF_ERROR(RopeAndStoreKv(rope_, memory_.stream()));
  }
  Turned turned;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<float> out, Out(rows));
  for (size_t row = 0; row < rows; ++row) {
    const float* const queries = out.data() + row * NumOut();
    turned.queries.insert(turned.queries.end(), queries,
                          queries + rope_.num_heads * settings_.head_size);
  }
  TANDEM_ASSIGN_OR_RETURN(turned.pages, memory_.Download<uint16_t>(pool_, page_elements));
  return turned;
}

absl::Status ProductCheck::CheckRope() {
  for (const size_t rows : kBoth) {
    TANDEM_ASSIGN_OR_RETURN(const Turned want, Turn(rows, false));
    TANDEM_ASSIGN_OR_RETURN(const Turned got, Turn(rows, true));
    const std::string what =
        absl::StrCat("MatMulRopeAndStoreKv and its two steps, ", rows, " rows, ");
    TANDEM_RETURN_IF_ERROR(CheckSame(what + "queries", got.queries, want.queries,
                                     rope_.num_heads * settings_.head_size));
    TANDEM_RETURN_IF_ERROR(CheckSame(what + "pages", got.pages, want.pages, settings_.head_size));
  }
  return absl::OkStatus();
}

size_t ProductCheck::Bytes(const KernelSettings& settings) {
  if (settings.weights != DType::kBF16) return 0;
  const size_t parts = static_cast<size_t>(settings.num_parts);
  const size_t num_out = OutFeatures(settings);
  constexpr size_t kPieces = 16;  // and more than there are
  return kPieces * DeviceArena::kAlignment + sizeof(uint16_t) * num_out * kInFeatures +
         sizeof(float) * num_out + sizeof(float) * kAllRows * num_out +
         sizeof(uint16_t) * parts * kAllRows * kInFeatures +
         sizeof(uint16_t) * parts * kAllRows * InnerStride(settings) +
         sizeof(uint16_t) * kPages * PageElements(settings) +
         sizeof(int32_t) * (kPages + 2 * kAllRows) +
         sizeof(float) * (kFirstCacheRow + kAllRows) * settings.head_size;
}

}  // namespace
}  // namespace product_check

size_t BytesToCheckProducts(const KernelSettings& settings) {
  return product_check::ProductCheck::Bytes(settings);
}

absl::Status CheckProducts(const DeviceInfo& device, const KernelSettings& settings,
                           CheckMemory& memory) {
  product_check::ProductCheck check(device, settings, memory);
  TANDEM_RETURN_IF_ERROR(check.Prepare());
  TANDEM_RETURN_IF_ERROR(check.CheckRows());
  TANDEM_RETURN_IF_ERROR(check.CheckReference());
  TANDEM_RETURN_IF_ERROR(check.CheckTiles());
  TANDEM_RETURN_IF_ERROR(check.CheckGate());
  if (settings.pages != DType::kBF16) return absl::OkStatus();
  TANDEM_RETURN_IF_ERROR(check.PrepareRope());
  return check.CheckRope();
}

}  // namespace tandem
