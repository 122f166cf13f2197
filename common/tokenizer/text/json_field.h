// A value in a JSON file together with its place, so that every error names file and field.
#ifndef TANDEM_COMMON_TOKENIZER_TEXT_JSON_FIELD_H_
#define TANDEM_COMMON_TOKENIZER_TEXT_JSON_FIELD_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Returns `text` in quotes. It is shortened, because file contents may be huge.
std::string Quoted(std::string_view text);

// Does not own the value. A missing member and null both count as absent.
class JsonField {
 public:
  // Errors begin with `name`, which is the name of the file for the root.
  JsonField(const nlohmann::json& value, std::string name)
      : value_(&value), name_(std::move(name)) {}

  bool present() const { return value_ != nullptr && !value_->is_null(); }
  const std::string& name() const { return name_; }
  absl::Status Error(const std::string& problem) const;

  // Return members and elements. PRECOND: CheckObject() or CheckArray() said OK, index < size().
  JsonField Member(const std::string& key) const;
  JsonField Element(size_t index) const;
  size_t size() const { return value_->size(); }
  absl::Status CheckObject() const;
  absl::Status CheckArray() const;

  absl::StatusOr<std::string> String() const;
  absl::StatusOr<bool> Bool(bool if_absent) const;
  absl::StatusOr<int64_t> Integer() const;
  // Returns a string of exactly one character as UTF-8.
  absl::StatusOr<std::string> Character() const;
  // Returns the member "type" of an object, which names the kind of a part in Hugging Face's files.
  absl::StatusOr<std::string> Type() const;

 private:
  JsonField(const nlohmann::json* value, std::string name)
      : value_(value), name_(std::move(name)) {}
  absl::Status WrongType(const char* want) const;

  const nlohmann::json* value_;
  std::string name_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_TOKENIZER_TEXT_JSON_FIELD_H_
