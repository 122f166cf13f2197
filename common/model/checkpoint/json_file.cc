#include "common/model/checkpoint/json_file.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "common/model/checkpoint/mapped_file.h"
#include "common/status.h"

namespace tandem {
namespace {

using Json = nlohmann::json;

// Builds the document from the parser's events. nlohmann's own builder keeps the last one of equal
// keys, and it has no limits.
class DocumentBuilder {
 public:
  explicit DocumentBuilder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return Scalar(Json()); }
  bool boolean(bool value) { return Scalar(Json(value)); }
  bool number_integer(int64_t value) { return Scalar(Json(value)); }
  bool number_unsigned(uint64_t value) { return Scalar(Json(value)); }
  bool number_float(double value, const std::string&) { return Scalar(Json(value)); }
  bool string(std::string& value) { return Scalar(Json(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return Fail("binary value"); }

  bool start_object(size_t) { return Open(Json::object()); }
  bool end_object() { return Close(); }
  bool start_array(size_t) { return Open(Json::array()); }
  bool end_array() { return Close(); }

  bool key(std::string& name) {
    const bool is_new = !open_.back()->contains(name);
    key_ = std::move(name);
    return is_new || Fail("key given twice");
  }

  bool parse_error(size_t byte, const std::string&, const nlohmann::detail::exception&) {
    return Fail("not valid JSON at byte " + std::to_string(byte));
  }

  Json TakeDocument() { return std::move(document_); }

  std::string ErrorText() const {
    constexpr size_t kLongestName = 100;
    std::string text;
    if (!key_.empty()) text = "at \"" + key_.substr(0, kLongestName) + "\": ";
    return text + error_;
  }

 private:
  bool Fail(std::string error) {
    error_ = std::move(error);
    return false;
  }

  // Puts a value into the place of the next value. Returns null if there are too many values.
  Json* Place(Json value) {
    if (++num_values_ > limits_.max_values) {
      Fail("more than " + std::to_string(limits_.max_values) + " values");
      return nullptr;
    }
    if (open_.empty()) {
      document_ = std::move(value);
      return &document_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    return &((*open_.back())[key_] = std::move(value));
  }

  bool Scalar(Json value) { return Place(std::move(value)) != nullptr; }

  bool Open(Json empty) {
    if (open_.size() >= limits_.max_depth) {
      return Fail("nested deeper than " + std::to_string(limits_.max_depth) + " levels");
    }
    Json* place = Place(std::move(empty));
    if (place == nullptr) return false;
    open_.push_back(place);
    return true;
  }

  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  Json document_;
  // Containers that are not yet closed. Their addresses stay valid, because nothing is added to a
  // container while a child is open.
  std::vector<Json*> open_;
  std::string key_;  // the newest one
  std::string error_;
  size_t num_values_ = 0;
};

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text, const std::string& where,
                               const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    return InvalidArgument(where + ": has " + std::to_string(text.size()) +
                           " bytes of JSON (at most " + std::to_string(limits.max_bytes) + ")");
  }
  DocumentBuilder builder(limits);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return InvalidArgument(where + ": " + builder.ErrorText());
  }
  return builder.TakeDocument();
}

absl::StatusOr<Json> ReadJsonFile(const std::filesystem::path& path, const JsonLimits& limits) {
  TANDEM_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  return ParseJson(file->bytes(), path.string(), limits);
}

}  // namespace tandem
