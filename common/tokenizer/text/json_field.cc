#include "common/tokenizer/text/json_field.h"

#include <algorithm>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/unicode.h"

namespace tandem {

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxShown = 60;
  size_t end = std::min(text.size(), kMaxShown);
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  std::string quoted(1, '"');
  quoted += text.substr(0, end);
  quoted += '"';
  if (end < text.size()) quoted += "... (" + std::to_string(text.size()) + " bytes)";
  return quoted;
}

absl::Status JsonField::Error(const std::string& problem) const {
  return InvalidArgument(name_ + ": " + problem);
}

absl::Status JsonField::WrongType(const char* want) const {
  return Error(std::string(present() ? value_->type_name() : "missing") + " (want " + want + ")");
}

JsonField JsonField::Member(const std::string& key) const {
  const auto found = value_->find(key);
  const bool at_root = name_.ends_with(".json");
  return JsonField(found == value_->end() ? nullptr : &*found,
                   name_ + (at_root ? ": " : ".") + key);
}

JsonField JsonField::Element(size_t index) const {
  return JsonField(&(*value_)[index], name_ + "[" + std::to_string(index) + "]");
}

absl::Status JsonField::CheckObject() const {
  return present() && value_->is_object() ? absl::OkStatus() : WrongType("an object");
}

absl::Status JsonField::CheckArray() const {
  return present() && value_->is_array() ? absl::OkStatus() : WrongType("an array");
}

absl::StatusOr<std::string> JsonField::String() const {
  if (!present() || !value_->is_string()) return WrongType("a string");
  return value_->get_ref<const std::string&>();
}

absl::StatusOr<bool> JsonField::Bool(bool if_absent) const {
  if (!present()) return if_absent;
  if (!value_->is_boolean()) return WrongType("true or false");
  return value_->get<bool>();
}

absl::StatusOr<int64_t> JsonField::Integer() const {
  if (!present() || !value_->is_number_integer()) return WrongType("an integer");
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX) {
    return Error("out of range");
  }
  return value_->get<int64_t>();
}

absl::StatusOr<std::string> JsonField::Character() const {
  TANDEM_ASSIGN_OR_RETURN(std::string text, String());
  size_t end = 0;
  if (!text.empty()) NextCharacter(text, end);
  if (text.empty() || end != text.size()) return Error(Quoted(text) + " (want one character)");
  return text;
}

absl::StatusOr<std::string> JsonField::Type() const {
  TANDEM_RETURN_IF_ERROR(CheckObject());
  return Member("type").String();
}

}  // namespace tandem
