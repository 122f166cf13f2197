#include "common/model/checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "common/model/checkpoint/json_file.h"
#include "common/status.h"

namespace tandem {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are read in place");

constexpr size_t kLengthBytes = 8;

std::optional<uint64_t> ElementBytes(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, uint64_t>, 15> kTypes = {{{"BOOL", 1},
                                                                             {"U8", 1},
                                                                             {"I8", 1},
                                                                             {"F8_E5M2", 1},
                                                                             {"F8_E4M3", 1},
                                                                             {"I16", 2},
                                                                             {"U16", 2},
                                                                             {"F16", 2},
                                                                             {"BF16", 2},
                                                                             {"I32", 4},
                                                                             {"U32", 4},
                                                                             {"F32", 4},
                                                                             {"F64", 8},
                                                                             {"I64", 8},
                                                                             {"U64", 8}}};
  for (const auto& [name, bytes] : kTypes) {
    if (name == dtype) return bytes;
  }
  return std::nullopt;
}

struct Extent {
  uint64_t begin = 0;
  uint64_t end = 0;
  const std::string* name = nullptr;
};

// Reads one entry of the header, except for the address of its data.
absl::Status ReadEntry(const nlohmann::json& entry, const std::string& where, Tensor& tensor,
                       Extent& extent) {
  if (!entry.is_object()) return InvalidArgument(where + ": is not an object");
  const auto dtype = entry.find("dtype");
  if (dtype == entry.end() || !dtype->is_string()) {
    return InvalidArgument(where + ": dtype is missing or not a string");
  }
  tensor.dtype = dtype->get<std::string>();
  const std::optional<uint64_t> element_bytes = ElementBytes(tensor.dtype);
  if (!element_bytes) {
    return InvalidArgument(where + ": dtype \"" + tensor.dtype.substr(0, 32) + "\" is unknown");
  }
  const auto shape = entry.find("shape");
  if (shape == entry.end() || !shape->is_array()) {
    return InvalidArgument(where + ": shape is missing or not an array");
  }
  uint64_t bytes = *element_bytes;
  bool overflow = false;
  bool is_empty = false;
  for (const nlohmann::json& size : *shape) {
    if (!size.is_number_unsigned()) {
      return InvalidArgument(where + ": shape has an entry that is not a whole number >= 0");
    }
    tensor.shape.push_back(size.get<uint64_t>());
    if (tensor.shape.back() == 0) {
      is_empty = true;
    } else {
      overflow |= __builtin_mul_overflow(bytes, tensor.shape.back(), &bytes);
    }
  }
  if (overflow) return InvalidArgument(where + ": shape has more than 2^64 bytes");
  if (is_empty) bytes = 0;

  const auto offsets = entry.find("data_offsets");
  if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 ||
      !(*offsets)[0].is_number_unsigned() || !(*offsets)[1].is_number_unsigned()) {
    return InvalidArgument(where + ": data_offsets is not an array of two whole numbers >= 0");
  }
  extent.begin = (*offsets)[0].get<uint64_t>();
  extent.end = (*offsets)[1].get<uint64_t>();
  const std::string given =
      "data_offsets [" + std::to_string(extent.begin) + ", " + std::to_string(extent.end) + "]";
  if (extent.begin > extent.end) return InvalidArgument(where + ": " + given + " are reversed");
  if (extent.end - extent.begin != bytes) {
    return InvalidArgument(where + ": " + given + " span " +
                           std::to_string(extent.end - extent.begin) +
                           " bytes, shape and dtype want " + std::to_string(bytes));
  }
  tensor.bytes = bytes;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Safetensors>> Safetensors::Open(const std::filesystem::path& path) {
  TANDEM_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  std::unique_ptr<Safetensors> safetensors(new Safetensors(std::move(file)));
  TANDEM_RETURN_IF_ERROR(safetensors->ReadHeader());
  return safetensors;
}

absl::Status Safetensors::ReadHeader() {
  const std::string file_name = file_->path().string();
  const std::string_view bytes = file_->bytes();
  if (bytes.size() < kLengthBytes) {
    return InvalidArgument(file_name + ": has " + std::to_string(bytes.size()) +
                           " bytes (want at least 8, the header's length)");
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), kLengthBytes);
  const std::string header_text = ": header length " + std::to_string(header_bytes);
  if (header_bytes > kMaxHeaderBytes) {
    return InvalidArgument(file_name + header_text + " is over the limit of " +
                           std::to_string(kMaxHeaderBytes) + " bytes");
  }
  if (header_bytes > bytes.size() - kLengthBytes) {
    return InvalidArgument(file_name + header_text + " is past the end of the file (" +
                           std::to_string(bytes.size()) + " bytes; is it cut off?)");
  }
  JsonLimits limits;
  limits.max_bytes = kMaxHeaderBytes;
  limits.max_depth = 4;
  limits.max_values = 200'000;
  TANDEM_ASSIGN_OR_RETURN(
      const nlohmann::json header,
      ParseJson(bytes.substr(kLengthBytes, header_bytes), file_name + ": header", limits));
  if (!header.is_object()) return InvalidArgument(file_name + ": header is not a JSON object");

  const std::string_view data = bytes.substr(kLengthBytes + header_bytes);
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string where = file_name + ": tensor \"" + name.substr(0, 200) + "\"";
    Tensor tensor;
    Extent extent;
    TANDEM_RETURN_IF_ERROR(ReadEntry(entry, where, tensor, extent));
    if (extent.end > data.size()) {
      return InvalidArgument(where + ": data_offsets end at " + std::to_string(extent.end) +
                             ", past the file's " + std::to_string(data.size()) +
                             " bytes of data (is it cut off?)");
    }
    tensor.data = data.data() + extent.begin;
    const auto place = tensors_.emplace(name, std::move(tensor)).first;
    extent.name = &place->first;
    extents.push_back(extent);
  }

  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t end = 0;
  for (const Extent& extent : extents) {
    if (extent.begin != end) {
      return InvalidArgument(file_name + ": tensor \"" + *extent.name +
                             "\": data_offsets begin at " + std::to_string(extent.begin) +
                             (extent.begin < end ? ", overlapping the tensor that ends at "
                                                 : ", leaving a gap after ") +
                             std::to_string(end));
    }
    end = extent.end;
  }
  if (end != data.size()) {
    return InvalidArgument(file_name + ": " + std::to_string(data.size() - end) +
                           " bytes after the last tensor belong to none");
  }
  return absl::OkStatus();
}

}  // namespace tandem
