#include "common/tokenizer/tokenizer_file.h"

#include <array>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <utility>

#include "common/status.h"
#include "common/tokenizer/text/json_field.h"

namespace tandem {
namespace {

// The largest known tokenizer.json (262,144 entries) has 33 MB. Real files are 8 levels deep.
constexpr uintmax_t kMaxTokenizerFileBytes = 64 << 20;
constexpr size_t kMaxDepth = 64;
constexpr size_t kMaxStringBytes = 1 << 20;
constexpr size_t kMaxTreeValues = 1 << 18;

struct FileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, FileCloser>;

// Refuses a depth and string lengths that would cost the parser too much memory. Runs before the
// parser.
absl::Status CheckShape(std::FILE* file, const std::string& name) {
  std::array<char, 1 << 16> buffer;
  size_t depth = 0;
  size_t string_bytes = 0;
  bool in_string = false;
  bool escaped = false;
  while (const size_t count = std::fread(buffer.data(), 1, buffer.size(), file)) {
    for (const char c : std::string_view(buffer.data(), count)) {
      if (in_string) {
        if (++string_bytes > kMaxStringBytes) {
          return InvalidArgument(name + ": a string is longer than " +
                                 std::to_string(kMaxStringBytes) + " bytes");
        }
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        in_string = true;
        string_bytes = 0;
      } else if (c == '[' || c == '{') {
        if (++depth > kMaxDepth) {
          return InvalidArgument(name + ": nested deeper than " + std::to_string(kMaxDepth));
        }
      } else if ((c == ']' || c == '}') && depth > 0) {
        --depth;
      }
    }
  }
  std::rewind(file);
  return absl::OkStatus();
}

// Handles the parser's events: entries and merges go into their own lists, and everything else goes
// into the tree.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Reader(TokenizerFile& result, std::string name) : result_(result), name_(std::move(name)) {}

  const absl::Status& status() const { return status_; }

  bool null() override { return Value(nullptr); }
  bool boolean(bool value) override { return Value(value); }
  bool number_integer(number_integer_t value) override {
    return Top() == Container::kVocabulary ? Entry(value) : Value(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (Top() != Container::kVocabulary) return Value(value);
    return Entry(value > INT64_MAX ? INT64_MAX : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return Value(value); }
  bool binary(binary_t&) override { return false; }
  bool string(string_t& value) override {
    switch (Top()) {
      case Container::kMerges:
        return MergeOfOneString(value);
      case Container::kMerge:
        pair_.push_back(std::move(value));
        return true;
      default:
        return Value(std::move(value));
    }
  }
  bool key(string_t& value) override {
    key_ = std::move(value);
    return true;
  }

  bool start_object(size_t) override {
    if (InModel() && key_ == "vocab") {
      return Open(Container::kVocabulary);
    }
    return OpenInTree(nlohmann::json::object());
  }
  bool start_array(size_t) override {
    if (InModel() && key_ == "merges") {
      result_.merges.emplace();
      return Open(Container::kMerges);
    }
    // The vocabulary of a Unigram model.
    if (InModel() && key_ == "vocab") return Open(Container::kSkipped);
    if (Top() == Container::kMerges) {
      pair_.clear();
      return Open(Container::kMerge);
    }
    return OpenInTree(nlohmann::json::array());
  }
  bool end_object() override { return Close(); }
  bool end_array() override {
    if (Top() == Container::kMerge) {
      if (pair_.size() != 2) return Fail(MergeName() + ": want two strings");
      result_.merges->Add(pair_[0], pair_[1]);
    }
    return Close();
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // The text after nlohmann's own prefix: "[json.exception.parse_error.101] parse error at line
    // 1, column 2: ".
    const std::string what = error.what();
    const size_t prefix = what.find("] ");
    return Fail("not JSON at byte " + std::to_string(position) + ": " +
                Quoted(prefix == std::string::npos ? what : what.substr(prefix + 2)));
  }

 private:
  enum class Container { kTree, kVocabulary, kMerges, kMerge, kSkipped };

  Container Top() const { return open_.empty() ? Container::kTree : open_.back(); }
  bool InModel() const {
    return nodes_.size() == 2 && open_.size() == 2 && nodes_[0]->is_object() &&
           result_.tree.contains("model") && nodes_[1] == &result_.tree["model"] &&
           nodes_[1]->is_object();
  }
  std::string MergeName() const {
    return "model.merges[" + std::to_string(result_.merges->size()) + "]";
  }
  bool Fail(const std::string& problem) {
    status_ = InvalidArgument(name_ + ": " + problem);
    return false;
  }
  bool Open(Container container) {
    open_.push_back(container);
    return true;
  }
  bool OpenInTree(nlohmann::json value) {
    if (Top() == Container::kSkipped) return Open(Container::kSkipped);
    if (!Value(std::move(value))) return false;
    nodes_.push_back(last_);
    return Open(Container::kTree);
  }
  bool Close() {
    if (Top() == Container::kTree) nodes_.pop_back();
    open_.pop_back();
    return true;
  }

  bool Entry(int64_t id) {
    const absl::Status added = result_.vocabulary.Add(key_, id);
    return added.ok() || Fail("model.vocab[" + Quoted(key_) + "]: " + std::string(added.message()));
  }

  bool MergeOfOneString(const std::string& merge) {
    const size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      return Fail(MergeName() + ": " + Quoted(merge) +
                  " (want two entries with one space between)");
    }
    result_.merges->Add(std::string_view(merge).substr(0, space),
                        std::string_view(merge).substr(space + 1));
    return true;
  }

  // Handles a value of the tree, or a value in a place where it is not allowed.
  bool Value(nlohmann::json value) {
    switch (Top()) {
      case Container::kVocabulary:
        return Fail("model.vocab[" + Quoted(key_) + "]: " + value.type_name() +
                    " (want an integer id)");
      case Container::kMerges:
      case Container::kMerge:
        return Fail(MergeName() + ": " + value.type_name() + " (want a string or two)");
      case Container::kSkipped:
        return true;
      case Container::kTree:
        break;
    }
    if (++num_values_ > kMaxTreeValues) {
      return Fail("more than " + std::to_string(kMaxTreeValues) + " values beside the vocabulary");
    }
    if (nodes_.empty()) {
      result_.tree = std::move(value);
      last_ = &result_.tree;
    } else if (nodes_.back()->is_array()) {
      nodes_.back()->push_back(std::move(value));
      last_ = &nodes_.back()->back();
    } else {
      last_ = &((*nodes_.back())[key_] = std::move(value));
    }
    return true;
  }

  TokenizerFile& result_;
  std::string name_;
  absl::Status status_;
  std::string key_;
  std::vector<std::string> pair_;
  std::vector<Container> open_;
  std::vector<nlohmann::json*> nodes_;  // open containers of the tree
  nlohmann::json* last_ = nullptr;      // the value added last
  size_t num_values_ = 0;
};

}  // namespace

void MergeList::Add(std::string_view left, std::string_view right) {
  spans_.push_back({static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(left.size()),
                    static_cast<uint32_t>(right.size())});
  texts_ += left;
  texts_ += right;
}

MergeList::Pair MergeList::operator[](size_t rank) const {
  const Span& span = spans_[rank];
  const std::string_view texts = texts_;
  return {texts.substr(span.offset, span.left_length),
          texts.substr(span.offset + span.left_length, span.right_length)};
}

absl::StatusOr<TokenizerFile> TokenizerFile::Read(const std::filesystem::path& path) {
  const std::string name = path.string();
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return NotFound(name + ": " + error.message());
  if (size > kMaxTokenizerFileBytes) {
    return InvalidArgument(name + ": " + std::to_string(size) + " bytes (want at most " +
                           std::to_string(kMaxTokenizerFileBytes) + ")");
  }
  const File file(std::fopen(name.c_str(), "rb"));
  if (file == nullptr) {
    return NotFound(name + ": " + std::error_code(errno, std::generic_category()).message());
  }
  TANDEM_RETURN_IF_ERROR(CheckShape(file.get(), name));

  TokenizerFile result;
  Reader reader(result, name);
  try {
    if (!nlohmann::json::sax_parse(file.get(), &reader)) return reader.status();
  } catch (const nlohmann::json::exception& exception) {
    return InvalidArgument(name + ": " + exception.what());
  }
  return result;
}

}  // namespace tandem
