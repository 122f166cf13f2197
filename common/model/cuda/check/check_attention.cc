#include "common/model/cuda/check/check_attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "kernels/attention.h"

namespace tandem {
namespace attention_check {
namespace {

// Rows of the pass: those of a chain after cached ones, those of a tree, and for each of these the
// last row of the chain that its path makes.
constexpr size_t kChainLen = 200;  // positions
constexpr size_t kCached = 50;
constexpr size_t kChainRows = kChainLen - kCached;
constexpr std::array<int32_t, 6> kParents = {-1, 0, 0, 1, 2, -1};
constexpr size_t kTreeBegin = 130;  // positions before the tree, which are the chain's
constexpr size_t kTreeRows = kParents.size();
constexpr size_t kFirstOfTree = kChainRows;
constexpr size_t kFirstPath = kFirstOfTree + kTreeRows;
constexpr size_t kRows = kFirstPath + kTreeRows;
constexpr size_t kTokens = kChainLen + kTreeRows;

constexpr size_t kKvHeads = 2;
constexpr size_t kLayers = 2;  // the kernels get the second layer
constexpr size_t kBlocks = (kChainLen + kKeyBlock - 1) / kKeyBlock;
constexpr size_t kBlockOfTree = kTreeBegin / kKeyBlock;
constexpr size_t kPages = kBlocks + 1 + kTreeRows;
// So many blocks of positions that attention on matrix units splits the work of few rows.
constexpr size_t kBlocksThatSplit = 24;
constexpr size_t kGroup = 16;  // rows that are computed at once
constexpr size_t kAloneEvery = 7;

// Pages lie in this order. It moves every page.
constexpr size_t PlaceOf(size_t page) { return (page * 7 + 3) % kPages; }
static_assert(kPages % 7 != 0, "no two pages have one place");

// Returns the F16 of a number that it can hold.
uint16_t HalfOf(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits >> 31 << 15;
  if (value == 0) return static_cast<uint16_t>(sign);
  const uint32_t exponent = (bits >> 23 & 0xFF) - 127 + 15;
  return static_cast<uint16_t>(sign | exponent << 10 | (bits >> 13 & 0x3FF));
}

// Writes a number, which the type can hold, as element `index`.
void Write(std::vector<uint8_t>* elements, DType dtype, size_t index, float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (dtype == DType::kBF16) bits >>= 16;
  if (dtype == DType::kF16) bits = HalfOf(value);
  std::memcpy(elements->data() + index * SizeOf(dtype), &bits, SizeOf(dtype));
}

class AttentionCheck {
 public:
  AttentionCheck(const KernelSettings& settings, CheckMemory& memory)
      : settings_(settings), memory_(memory) {}

  static size_t RowFloats(const KernelSettings& settings) {
    return kKvHeads * settings.heads_per_kv_head * settings.head_size;
  }
  static size_t PageElements(const KernelSettings& settings) {
    return kLayers * 2 * kKvHeads * kKeyBlock * settings.head_size;
  }
  // Partial softmaxes of the largest call.
  static size_t Partials(const KernelSettings& settings) {
    return kKvHeads * settings.heads_per_kv_head *
           std::max(kChainRows * kBlocks, kGroup * kBlocksThatSplit);
  }

  // Returns the bytes of device memory that the check takes.
  static size_t Bytes(const KernelSettings& settings);

  absl::Status Prepare();
  absl::Status CheckChain();
  absl::Status CheckReference();
  absl::Status CheckTree();

 private:
  // The result of rows, as floats: [rows, num_values_]. BF16 parts lie side by side.
  using Result = std::vector<float>;

  bool in_parts() const { return settings_.weights == DType::kBF16; }
  size_t KvFloats() const { return kKvHeads * settings_.head_size; }

  absl::Status PreparePages();
  absl::Status PrepareRows();
  absl::Status PrepareResults();
  // Writes keys and values of a token to a row of a page.
  void Store(std::vector<uint8_t>* pool, size_t page, size_t row, size_t token) const;
  // Computes rows [first, first + rows), cut into tiles. `tiles` count from `first`. The work over
  // positions is split or, where a kernel can, merged at once.
  absl::StatusOr<Result> Run(size_t first, size_t rows, const std::vector<int32_t>& tiles,
                             bool is_split);
  absl::StatusOr<Result> Fetch(size_t rows);

  const KernelSettings& settings_;
  CheckMemory& memory_;
  CheckNumbers numbers_{2};
  std::vector<float> keys_, values_;  // [kTokens, KvFloats]
  std::vector<float> queries_;        // [kRows, RowFloats]
  DeviceAttentionArgs args_;          // all rows
  float* partial_values_ = nullptr;
  float* partial_maxima_ = nullptr;
  float* partial_sums_ = nullptr;
  size_t num_values_ = 0;
  Result chain_;  // rows of the chain, computed together
};

void AttentionCheck::Store(std::vector<uint8_t>* pool, size_t page, size_t row,
                           size_t token) const {
  for (size_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
    const size_t to = args_.kv.KeysAt(PlaceOf(page), kv_head, row);
    const size_t from = token * KvFloats() + kv_head * settings_.head_size;
    for (size_t i = 0; i < settings_.head_size; ++i) {
      Write(pool, settings_.pages, to + i, keys_[from + i]);
      Write(pool, settings_.pages, to + args_.kv.ValueOffset() + i, values_[from + i]);
    }
  }
}

absl::Status AttentionCheck::PreparePages() {
  keys_ = numbers_.Coarse(kTokens * KvFloats());
  values_ = numbers_.Coarse(kTokens * KvFloats());
  args_.kv = {.dtype = settings_.pages,
              .page_stride = PageElements(settings_),
              .layer_offset = PageElements(settings_) / kLayers,
              .num_kv_heads = kKvHeads,
              .head_size = settings_.head_size};
  // Rows that nobody sees are NaN.
  std::vector<uint8_t> pool(kPages * PageElements(settings_) * SizeOf(settings_.pages), 0xFF);
  for (size_t token = 0; token < kChainLen; ++token) {
    Store(&pool, token / kKeyBlock, token % kKeyBlock, token);
  }
  constexpr size_t kRowsBefore = kTreeBegin % kKeyBlock;  // on the tree's page
  static_assert(kRowsBefore + kTreeRows <= kKeyBlock);
  for (size_t page = kBlocks; page < kPages; ++page) {
    for (size_t row = 0; row < kRowsBefore; ++row) {
      Store(&pool, page, row, kBlockOfTree * kKeyBlock + row);
    }
  }
  for (size_t node = 0; node < kTreeRows; ++node) {
    Store(&pool, kBlocks, kRowsBefore + node, kChainLen + node);
    std::vector<size_t> path;
    for (auto i = static_cast<int32_t>(node); i >= 0; i = kParents[i]) path.insert(path.begin(), i);
    for (size_t i = 0; i < path.size(); ++i) {
      Store(&pool, kBlocks + 1 + node, kRowsBefore + i, kChainLen + path[i]);
    }
  }
  TANDEM_ASSIGN_OR_RETURN(args_.kv.pool, memory_.Upload(pool));
  return absl::OkStatus();
}

absl::Status AttentionCheck::PrepareRows() {
  std::vector<int32_t> sequences, prefix_lens, path_lens, paths, tables;
  const auto add = [&](size_t sequence, size_t prefix_len, std::vector<int32_t> path) {
    sequences.push_back(static_cast<int32_t>(sequence));
    prefix_lens.push_back(static_cast<int32_t>(prefix_len));
    path_lens.push_back(static_cast<int32_t>(path.size()));
    path.resize(kMaxDraftDepth, -1);
    paths.insert(paths.end(), path.begin(), path.end());
  };
  std::vector<std::vector<int32_t>> of_nodes;
  for (size_t node = 0; node < kTreeRows; ++node) {
    std::vector<int32_t>& path = of_nodes.emplace_back();
    for (auto i = static_cast<int32_t>(node); i >= 0; i = kParents[i]) path.insert(path.begin(), i);
  }
  for (size_t row = 0; row < kChainRows; ++row) add(0, kCached + row + 1, {});
  for (const std::vector<int32_t>& path : of_nodes) add(1, kTreeBegin, path);
  for (size_t node = 0; node < kTreeRows; ++node) {
    add(2 + node, kTreeBegin + of_nodes[node].size(), {});
  }
  // Sequences have the pages of the chain, and all but the first one have a page of their own.
  for (size_t sequence = 0; sequence < 2 + kTreeRows; ++sequence) {
    for (size_t block = 0; block < kBlocks; ++block) {
      const bool is_own = sequence > 0 && block == kBlockOfTree;
      tables.push_back(static_cast<int32_t>(PlaceOf(is_own ? kBlocks + sequence - 1 : block)));
    }
  }
  args_.rows.table_stride = kBlocks;
  TANDEM_ASSIGN_OR_RETURN(args_.rows.page_tables, memory_.Upload(tables));
  TANDEM_ASSIGN_OR_RETURN(args_.rows.sequences, memory_.Upload(sequences));
  TANDEM_ASSIGN_OR_RETURN(args_.rows.prefix_lens, memory_.Upload(prefix_lens));
  TANDEM_ASSIGN_OR_RETURN(args_.rows.path_lens, memory_.Upload(path_lens));
  TANDEM_ASSIGN_OR_RETURN(args_.rows.paths, memory_.Upload(paths));
  return absl::OkStatus();
}

absl::Status AttentionCheck::PrepareResults() {
  const size_t size = RowFloats(settings_);
  const size_t num_parts = in_parts() ? static_cast<size_t>(settings_.num_parts) : 1;
  num_values_ = num_parts * size;
  queries_ = settings_.num_parts == 1 ? numbers_.UniformBf16(kRows * size)
                                      : numbers_.Uniform(kRows * size);
  // A path's last row asks what the row of the tree asks.
  std::copy_n(queries_.begin() + kFirstOfTree * size, kTreeRows * size,
              queries_.begin() + kFirstPath * size);
  args_.num_heads = kKvHeads * settings_.heads_per_kv_head;
  args_.scale = 1 / std::sqrt(static_cast<float>(settings_.head_size));
  TANDEM_ASSIGN_OR_RETURN(args_.queries, memory_.Upload(queries_));
  args_.queries_stride = size;
  const size_t partials = Partials(settings_);
  TANDEM_ASSIGN_OR_RETURN(partial_values_, memory_.Take<float>(partials * settings_.head_size));
  TANDEM_ASSIGN_OR_RETURN(partial_maxima_, memory_.Take<float>(partials));
  TANDEM_ASSIGN_OR_RETURN(partial_sums_, memory_.Take<float>(partials));
  if (in_parts()) {
    const size_t stride = (size + 7) / 8 * 8;
    args_.out_bf16 = {
        .stride = stride, .part_stride = kChainRows * stride, .num_parts = settings_.num_parts};
    TANDEM_ASSIGN_OR_RETURN(args_.out_bf16.parts,
                            memory_.Take<uint16_t>(num_parts * args_.out_bf16.part_stride));
  } else {
    TANDEM_ASSIGN_OR_RETURN(args_.out, memory_.Take<float>(kChainRows * size));
    args_.out_stride = size;
  }
  return absl::OkStatus();
}

absl::Status AttentionCheck::Prepare() {
  TANDEM_RETURN_IF_ERROR(PreparePages());
  TANDEM_RETURN_IF_ERROR(PrepareRows());
  return PrepareResults();
}

absl::StatusOr<AttentionCheck::Result> AttentionCheck::Fetch(size_t rows) {
  if (!in_parts()) return memory_.Download<float>(args_.out, rows * num_values_);
  const Bf16Rows& from = args_.out_bf16;
  const auto num_parts = static_cast<size_t>(from.num_parts);
  const size_t size = RowFloats(settings_);
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint16_t> parts,
                          memory_.Download<uint16_t>(from.parts, num_parts * from.part_stride));
  Result result;
  result.reserve(rows * num_values_);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t part = 0; part < num_parts; ++part) {
      const uint16_t* const begin = parts.data() + part * from.part_stride + row * from.stride;
      for (size_t i = 0; i < size; ++i) result.push_back(WidenBf16(begin[i]));
    }
  }
  return result;
}

absl::StatusOr<AttentionCheck::Result> AttentionCheck::Run(size_t first, size_t rows,
                                                           const std::vector<int32_t>& tiles,
                                                           bool is_split) {
  DeviceAttentionArgs args = args_;
  args.rows.rows = rows;
  args.rows.sequences += first;
  args.rows.prefix_lens += first;
  args.rows.path_lens += first;
  args.rows.paths += first * kMaxDraftDepth;
  args.rows.num_tiles = tiles.size() - 1;
  TANDEM_ASSIGN_OR_RETURN(args.rows.tiles, memory_.Upload(tiles));
  args.queries += first * args.queries_stride;
  args.max_blocks = is_split ? kBlocksThatSplit : kBlocks;
  const size_t partials = rows * args.num_heads * args.max_blocks;
  if (is_split || NeedsPartials(args)) {
    args.partial_values = partial_values_;
    args.partial_maxima = partial_maxima_;
    args.partial_sums = partial_sums_;
    TANDEM_RETURN_IF_ERROR(memory_.Spoil(partial_values_, partials * settings_.head_size));
    TANDEM_RETURN_IF_ERROR(memory_.Spoil(partial_maxima_, partials));
    TANDEM_RETURN_IF_ERROR(memory_.Spoil(partial_sums_, partials));
  }
  if (in_parts()) {
    TANDEM_RETURN_IF_ERROR(
        memory_.Spoil(args.out_bf16.parts, args.out_bf16.part_stride * args.out_bf16.num_parts));
  } else {
    TANDEM_RETURN_IF_ERROR(memory_.Spoil(args.out, kChainRows * args.out_stride));
  }
  TANDEM_RETURN_IF_ERROR(Attention(args, memory_.stream()));
  return Fetch(rows);
}

absl::Status AttentionCheck::CheckChain() {
  // Tiles of 32 rows, which only long passes have, and of 16.
  const std::vector<int32_t> tiles = {0, 32, 64, 80, 96, 112, 128, 144, kChainRows};
  TANDEM_ASSIGN_OR_RETURN(chain_, Run(0, kChainRows, tiles, false));
  const auto part = [&](size_t first, size_t rows) {
    const auto begin = chain_.begin() + static_cast<ptrdiff_t>(first * num_values_);
    return Result(begin, begin + static_cast<ptrdiff_t>(rows * num_values_));
  };
  for (size_t first = 0; first < kChainRows; first += kGroup) {
    const size_t rows = std::min(kGroup, kChainRows - first);
    TANDEM_ASSIGN_OR_RETURN(const Result got,
                            Run(first, rows, {0, static_cast<int32_t>(rows)}, true));
    const std::string what = absl::StrCat("Attention of ", rows, " rows at position ",
                                          kCached + first, " and of ", kChainRows, " rows");
    TANDEM_RETURN_IF_ERROR(CheckSame(what, got, part(first, rows), num_values_));
  }
  for (size_t row = 0; row < kChainRows; row += kAloneEvery) {
    TANDEM_ASSIGN_OR_RETURN(const Result got, Run(row, 1, {0, 1}, true));
    const std::string what = absl::StrCat("Attention of a row at position ", kCached + row,
                                          " and of ", kChainRows, " rows");
    TANDEM_RETURN_IF_ERROR(CheckSame(what, got, part(row, 1), num_values_));
  }
  return absl::OkStatus();
}

absl::Status AttentionCheck::CheckReference() {
  std::vector<float> cache(kBlocks * 2 * kKeyBlock * KvFloats());
  std::vector<float*> pages;
  for (size_t block = 0; block < kBlocks; ++block) {
    pages.push_back(cache.data() + block * 2 * kKeyBlock * KvFloats());
  }
  const KvLayer kv = {
      .pages = pages.data(), .num_kv_heads = kKvHeads, .head_size = settings_.head_size};
  StoreKv({.kv = kv,
           .rows = kChainLen,
           .keys = keys_.data(),
           .keys_stride = KvFloats(),
           .values = values_.data(),
           .values_stride = KvFloats()});
  const size_t size = RowFloats(settings_);
  // A single part is rounded to eight bits. Matrix units take rounded probabilities too.
  const double absolute = NeedsPartials(args_) ? 3e-6 : 0x1p-8 + 3e-6;
  const double relative = in_parts() && settings_.num_parts == 1 ? 0x1p-8 : 0;
  for (const size_t row : {size_t{0}, kKeyBlock - kCached, kChainRows / 2, kChainRows - 1}) {
    std::vector<float> want(size), got(size);
    AttentionReference({.kv = kv,
                        .cached_len = kCached,
                        .first_row = row,
                        .rows = 1,
                        .parents = {},
                        .num_heads = args_.num_heads,
                        .queries = queries_.data() + row * size,
                        .queries_stride = size,
                        .out = want.data(),
                        .out_stride = size});
    for (size_t i = 0; i < num_values_; ++i) got[i % size] += chain_[row * num_values_ + i];
    const std::string what =
        absl::StrCat("Attention at position ", kCached + row, ", on the GPU and on the host");
    TANDEM_RETURN_IF_ERROR(CheckNear(what, got, want, size, absolute, relative));
  }
  return absl::OkStatus();
}

absl::Status AttentionCheck::CheckTree() {
  std::vector<int32_t> tiles;  // each path is a sequence
  for (size_t i = 0; i <= kTreeRows; ++i) tiles.push_back(static_cast<int32_t>(i));
  TANDEM_ASSIGN_OR_RETURN(const Result want, Run(kFirstPath, kTreeRows, tiles, true));
  for (const bool is_split : {false, true}) {
    TANDEM_ASSIGN_OR_RETURN(const Result got, Run(kFirstOfTree, kTreeRows,
                                                  {0, static_cast<int32_t>(kTreeRows)}, is_split));
    TANDEM_RETURN_IF_ERROR(
        CheckSame("Attention of a tree and of the chains of its paths", got, want, num_values_));
  }
  return absl::OkStatus();
}

size_t AttentionCheck::Bytes(const KernelSettings& settings) {
  const size_t row = RowFloats(settings);
  constexpr size_t kPieces = 64;  // and more than there are
  return kPieces * DeviceArena::kAlignment +
         kPages * PageElements(settings) * SizeOf(settings.pages) +
         sizeof(int32_t) * kRows * (3 + kMaxDraftDepth) + sizeof(float) * kRows * row +
         sizeof(float) * Partials(settings) * (settings.head_size + 2) +
         sizeof(uint16_t) * kMostBf16Parts * kChainRows * (row + 7);
}

}  // namespace
}  // namespace attention_check

size_t BytesToCheckAttention(const KernelSettings& settings) {
  return attention_check::AttentionCheck::Bytes(settings);
}

absl::Status CheckAttention(const KernelSettings& settings, CheckMemory& memory) {
  attention_check::AttentionCheck check(settings, memory);
  TANDEM_RETURN_IF_ERROR(check.Prepare());
  TANDEM_RETURN_IF_ERROR(check.CheckChain());
  TANDEM_RETURN_IF_ERROR(check.CheckReference());
  return check.CheckTree();
}

}  // namespace tandem
