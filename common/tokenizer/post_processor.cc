#include "common/tokenizer/post_processor.h"

#include <string>

#include "common/status.h"

namespace tandem {
namespace {

absl::StatusOr<std::vector<int32_t>> IdsOf(const JsonField& field, size_t num_ids) {
  TANDEM_RETURN_IF_ERROR(field.CheckArray());
  std::vector<int32_t> ids;
  for (size_t i = 0; i < field.size(); ++i) {
    TANDEM_ASSIGN_OR_RETURN(const int64_t id, field.Element(i).Integer());
    if (id < 0 || static_cast<uint64_t>(id) >= num_ids) {
      return field.Element(i).Error(std::to_string(id) + " is out of range (the vocabulary has " +
                                    std::to_string(num_ids) + " ids)");
    }
    ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

absl::Status AddTemplate(const JsonField& field, size_t num_ids, PostProcessor& result) {
  const JsonField pieces = field.Member("single");
  TANDEM_RETURN_IF_ERROR(pieces.CheckArray());
  PostProcessor around;
  bool text_seen = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const JsonField piece = pieces.Element(i);
    TANDEM_RETURN_IF_ERROR(piece.CheckObject());
    const JsonField sequence = piece.Member("Sequence");
    if (sequence.present()) {
      TANDEM_RETURN_IF_ERROR(sequence.CheckObject());
      TANDEM_ASSIGN_OR_RETURN(const std::string id, sequence.Member("id").String());
      if (id != "A" || text_seen) return sequence.Error("want one Sequence, A");
      text_seen = true;
      continue;
    }
    const JsonField special = piece.Member("SpecialToken");
    TANDEM_RETURN_IF_ERROR(special.CheckObject());
    TANDEM_ASSIGN_OR_RETURN(const std::string name, special.Member("id").String());
    const JsonField tokens = field.Member("special_tokens");
    TANDEM_RETURN_IF_ERROR(tokens.CheckObject());
    const JsonField token = tokens.Member(name);
    TANDEM_RETURN_IF_ERROR(token.CheckObject());
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, IdsOf(token.Member("ids"), num_ids));
    std::vector<int32_t>& side = text_seen ? around.after : around.before;
    side.insert(side.end(), ids.begin(), ids.end());
  }
  if (!text_seen) return pieces.Error("want one Sequence, A");
  result.before.insert(result.before.begin(), around.before.begin(), around.before.end());
  result.after.insert(result.after.end(), around.after.begin(), around.after.end());
  return absl::OkStatus();
}

absl::Status AddProcessor(const JsonField& field, size_t num_ids, PostProcessor& result) {
  TANDEM_ASSIGN_OR_RETURN(const std::string type, field.Type());
  if (type == "TemplateProcessing") return AddTemplate(field, num_ids, result);
  if (type == "ByteLevel") return absl::OkStatus();
  if (type == "Sequence") {
    const JsonField parts = field.Member("processors");
    TANDEM_RETURN_IF_ERROR(parts.CheckArray());
    for (size_t i = 0; i < parts.size(); ++i) {
      TANDEM_RETURN_IF_ERROR(AddProcessor(parts.Element(i), num_ids, result));
    }
    return absl::OkStatus();
  }
  return field.Member("type").Error(
      Quoted(type) + " is not supported (want TemplateProcessing, ByteLevel or Sequence)");
}

}  // namespace

absl::StatusOr<PostProcessor> PostProcessor::FromJson(const JsonField& field, size_t num_ids) {
  PostProcessor result;
  if (field.present()) TANDEM_RETURN_IF_ERROR(AddProcessor(field, num_ids, result));
  return result;
}

}  // namespace tandem
