// The fields of a JSON object that describes a model, read with checks.
#ifndef TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FIELDS_H_
#define TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FIELDS_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace tandem {

// Returns a value as messages show it, cut if it is long.
std::string ShownJson(const nlohmann::json& value);
std::string ShownJson(double value);

// The fields of one JSON object. A null field counts as missing, because Hugging Face writes null
// for "not set". The first fault is kept, and later reads return the default.
class JsonFields {
 public:
  // `file` and `prefix` go before field names in messages. `object` and `status` must outlive it.
  JsonFields(const nlohmann::json& object, std::string file, std::string prefix,
             absl::Status& status);

  // Returns null if the field is not set.
  const nlohmann::json* Find(const std::string& name) const;
  // Returns a whole number in [min, max]. The field is required if there is no default.
  size_t Whole(const std::string& name, size_t min, size_t max,
               std::optional<size_t> default_value = std::nullopt) const;
  // Returns a finite number in [min, max]. The field is required if there is no default.
  double Real(const std::string& name, double min, double max,
              std::optional<double> default_value = std::nullopt) const;
  bool Boolean(const std::string& name, bool default_value) const;
  std::string String(const std::string& name, const std::string& default_value) const;
  // Returns the fields of a nested object, or nothing if it is not set.
  std::optional<JsonFields> Object(const std::string& name) const;
  // Says that a field has a fault: "FILE: FIELD WHY".
  void Refuse(const std::string& name, const std::string& why) const;

 private:
  const nlohmann::json& object_;
  std::string file_;
  std::string prefix_;
  absl::Status& status_;
};

}  // namespace tandem

#endif  // TANDEM_COMMON_MODEL_CHECKPOINT_JSON_FIELDS_H_
