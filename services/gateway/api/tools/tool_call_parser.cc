#include "services/gateway/api/tools/tool_call_parser.h"

#include <optional>
#include <utility>

#include "services/gateway/api/tools/call_sink.h"

namespace tandem::gateway {
namespace {

// Returns how many bytes at the beginning are space.
size_t SpaceBefore(std::string_view text) {
  size_t size = 0;
  while (size < text.size() && IsJsonSpace(text[size])) ++size;
  return size;
}

class HermesCalls final : public ToolCallParser {
 public:
  void Push(std::string_view text, ToolOutput* output) override {
    std::string rest(text);
    while (!rest.empty()) rest = Step(rest, output);
  }

  void Finish(ToolOutput* output) override {
    if (call_.has_value()) output->content += call_->Unwritten(std::string(kBegin));
    const std::string rest = finder_.TakeRest();
    const bool is_space = SpaceBefore(rest) == rest.size();
    if (!is_space || sink_.num_calls() == 0) output->content += rest;
  }

  size_t num_calls() const override { return sink_.num_calls(); }

 private:
  static constexpr std::string_view kBegin = "<tool_call>";
  static constexpr std::string_view kEnd = "</tool_call>";

  // Takes some of the text, and returns the rest.
  std::string Step(const std::string& text, ToolOutput* output) {
    if (!call_.has_value()) {
      if (!finder_.Push(text, &output->content)) return "";
      call_.emplace();
      return finder_.TakeRest();
    }
    if (call_->state() == CallReader::State::kReading) {
      const size_t taken = call_->Push(text, &sink_, output);
      if (call_->state() == CallReader::State::kFailed) {
        output->content += call_->Unwritten(std::string(kBegin));
        call_.reset();
      }
      return text.substr(taken);
    }
    // After the object: the end tag, or something else that is text.
    std::string between;
    if (end_.Push(text, &between) || !between.empty()) {
      const std::string rest = between + end_.TakeRest();
      call_.reset();
      return rest;
    }
    return "";
  }

  CallSink sink_;
  TagFinder finder_{kBegin};
  TagFinder end_{kEnd};
  std::optional<ObjectCall> call_;  // none: between calls
};

class Llama3Calls final : public ToolCallParser {
 public:
  void Push(std::string_view text, ToolOutput* output) override {
    held_.append(text);
    while (!held_.empty() && Step(output)) {
    }
  }

  void Finish(ToolOutput* output) override {
    if (call_.has_value()) output->content += call_->Unwritten();
    if (is_text_ || sink_.num_calls() == 0) output->content += held_;
    held_.clear();
  }

  size_t num_calls() const override { return sink_.num_calls(); }

 private:
  static constexpr std::string_view kTag = "<|python_tag|>";

  void BecomeText(const std::string& before, ToolOutput* output) {
    output->content += before + std::exchange(held_, {});
    call_.reset();
    is_text_ = true;
  }

  // Takes some of the held text. Returns false if more text is needed.
  bool Step(ToolOutput* output) {
    if (is_text_) {
      BecomeText("", output);
      return false;
    }
    if (call_.has_value()) {
      held_.erase(0, call_->Push(held_, &sink_, output));
      if (call_->state() == CallReader::State::kFailed) BecomeText(call_->Unwritten(), output);
      if (call_.has_value() && call_->state() == CallReader::State::kDone) call_.reset();
      return true;
    }
    const size_t space = SpaceBefore(held_);
    const std::string_view rest = std::string_view(held_).substr(space);
    if (rest.empty()) return false;
    if (rest[0] == '{') {
      held_.erase(0, space);
      call_.emplace();
    } else if (sink_.num_calls() > 0 && rest[0] == ';') {
      held_.erase(0, space + 1);
    } else if (sink_.num_calls() == 0 && kTag.starts_with(rest.substr(0, kTag.size()))) {
      if (rest.size() < kTag.size()) return false;
      // Other texts after the tag are programs, which stay text.
      const size_t more = space + kTag.size();
      const size_t begin = more + SpaceBefore(std::string_view(held_).substr(more));
      if (begin == held_.size()) return false;
      if (held_[begin] != '{') {
        BecomeText("", output);
      } else {
        held_.erase(0, begin);
      }
    } else {
      BecomeText("", output);
    }
    return true;
  }

  CallSink sink_;
  std::string held_;
  std::optional<ObjectCall> call_;
  bool is_text_ = false;
};

class MistralCalls final : public ToolCallParser {
 public:
  void Push(std::string_view text, ToolOutput* output) override {
    held_.append(text);
    while (!held_.empty() && Step(output)) {
    }
  }

  void Finish(ToolOutput* output) override {
    if (call_.has_value()) output->content += call_->Unwritten(Opening());
    output->content += finder_.TakeRest();
    if (at_ == At::kName || at_ == At::kTag) output->content += std::string(kTag) + held_;
    held_.clear();
  }

  size_t num_calls() const override { return sink_.num_calls(); }

 private:
  // kTag: after the tag. kList: between the objects of a list. kObject, kName, kArguments: in them.
  enum class At { kText, kTag, kList, kObject, kName, kArguments };
  static constexpr std::string_view kTag = "[TOOL_CALLS]";
  static constexpr std::string_view kArgs = "[ARGS]";
  static constexpr std::string_view kId = "[CALL_ID]";

  bool Step(ToolOutput* output) {
    if (at_ == At::kText) {
      if (finder_.Push(std::exchange(held_, {}), &output->content)) {
        held_ = finder_.TakeRest();
        at_ = At::kTag;
      }
      return true;
    }
    if (at_ == At::kObject) return StepObject(output);
    if (at_ == At::kName) return StepName(output);
    if (at_ == At::kArguments) {
      const size_t size = end_.Push(held_);
      sink_.AddArguments(held_.substr(0, size), output);
      held_.erase(0, size);
      if (end_.ended()) at_ = At::kText;
      return true;
    }
    held_.erase(0, SpaceBefore(held_));
    if (held_.empty()) return false;
    const char c = held_[0];
    if (at_ == At::kTag && c != '[' && c != '{') {
      at_ = At::kName;
    } else if (c == '{') {
      call_.emplace();
      is_list_ = at_ == At::kList;
      at_ = At::kObject;
    } else if (at_ == At::kTag || c == ',') {  // the list begins or goes on
      held_.erase(0, 1);
      at_ = At::kList;
    } else {  // the list has ended, and something else is text
      if (c == ']') held_.erase(0, 1);
      at_ = At::kText;
    }
    return true;
  }

  // What came before the first object.
  std::string Opening() const {
    if (sink_.num_calls() > 0) return "";
    return std::string(kTag) + (is_list_ ? "[" : "");
  }

  bool StepObject(ToolOutput* output) {
    held_.erase(0, call_->Push(held_, &sink_, output));
    if (call_->state() == CallReader::State::kReading) return true;
    const bool failed = call_->state() == CallReader::State::kFailed;
    if (failed) output->content += call_->Unwritten(Opening());
    at_ = is_list_ && !failed ? At::kList : At::kText;
    call_.reset();
    return true;
  }

  // NAME{…}, NAME[ARGS]{…} or NAME[CALL_ID]ID[ARGS]{…}.
  bool StepName(ToolOutput* output) {
    const size_t brace = held_.find('{');
    if (brace == std::string::npos) return false;
    std::string name = held_.substr(0, brace);
    for (const std::string_view mark : {kId, kArgs}) name = name.substr(0, name.find(mark));
    while (!name.empty() && IsJsonSpace(name.back())) name.pop_back();
    sink_.Begin(name, output);
    held_.erase(0, brace);
    end_ = JsonValueEnd();
    at_ = At::kArguments;
    return true;
  }

  CallSink sink_;
  TagFinder finder_{kTag};
  At at_ = At::kText;
  bool is_list_ = false;
  JsonValueEnd end_;
  std::string held_;
  std::optional<ObjectCall> call_;
};

}  // namespace

std::unique_ptr<ToolCallParser> MakeToolCallParser(std::string_view format) {
  if (format == "hermes") return std::make_unique<HermesCalls>();
  if (format == "llama3_json") return std::make_unique<Llama3Calls>();
  if (format == "mistral") return std::make_unique<MistralCalls>();
  return nullptr;
}

bool WantsShortCallIds(std::string_view format) { return format == "mistral"; }

}  // namespace tandem::gateway
