#include "services/cli/index/index_command.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/retrieval/retrieval_builder.h"
#include "common/status.h"
#include "common/tokenizer/tokenizer.h"
#include "services/cli/supervisor/server_plan.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"
#include "services/cli/terminal/text_file.h"

namespace tandem::cli {

namespace fs = std::filesystem;

namespace {

// A text is tokenized in pieces of about this many bytes, which end where a line ends.
constexpr size_t kPieceBytes = 256 << 10;

// Shows one line of progress, on a terminal only.
class ProgressLine {
 public:
  explicit ProgressLine(Console& console) : console_(console) {}
  ~ProgressLine() {
    if (console_.err_is_terminal) console_.err << "\r\x1b[K" << std::flush;
  }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void Show(const char* what, double done) {
    const int percent = static_cast<int>(std::floor(100 * done));
    if (!console_.err_is_terminal || (percent == percent_ && what == what_)) return;
    percent_ = percent;
    what_ = what;
    console_.err << "\r\x1b[K" << what << ": " << percent << " %" << std::flush;
  }

 private:
  Console& console_;
  int percent_ = -1;
  const char* what_ = nullptr;
};

struct Corpus {
  // In the order of their names, so that the index does not depend on the file system.
  std::vector<fs::path> files;
  uint64_t num_bytes = 0;
  bool is_folder = false;
};

absl::StatusOr<Corpus> FindCorpus(const std::string& path, const std::string& output) {
  Corpus corpus;
  std::error_code error;
  corpus.is_folder = fs::is_directory(path, error);
  if (!corpus.is_folder) {
    corpus.files = {path};
    corpus.num_bytes = fs::file_size(path, error);
    return corpus;
  }
  for (fs::recursive_directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code ignored;
    const bool is_hidden = at->path().filename().string().starts_with('.');
    if (is_hidden && at->is_directory(ignored)) at.disable_recursion_pending();
    if (is_hidden || !at->is_regular_file(ignored) || at->file_size(ignored) == 0 ||
        fs::equivalent(at->path(), output, ignored)) {
      continue;
    }
    corpus.files.push_back(at->path());
    corpus.num_bytes += at->file_size(ignored);
  }
  if (error) return InvalidArgument(absl::StrCat("CORPUS: ", path, ": ", error.message()));
  std::sort(corpus.files.begin(), corpus.files.end());
  return corpus;
}

// The first piece of the text: up to the end of a line after kPieceBytes or, in a long line, the
// end of a character.
std::string_view NextPiece(std::string_view text) {
  if (text.size() <= 2 * kPieceBytes) return text;
  size_t end = text.substr(0, 2 * kPieceBytes).find('\n', kPieceBytes);
  if (end != std::string_view::npos) return text.substr(0, end + 1);
  // The later bytes of a character begin with the bits 10.
  for (end = 2 * kPieceBytes; (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80;) --end;
  return text.substr(0, end);
}

// Whether the file begins like a text. Other files may be huge, and are not read.
bool BeginsLikeText(const fs::path& path) {
  std::string begin(4096, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(file.gcount()));
  return begin.find('\0') == std::string::npos;
}

absl::Status AddText(std::string_view text, const Tokenizer& tokenizer,
                     const std::function<void(size_t bytes)>& on_bytes, RetrievalBuilder* builder) {
  while (!text.empty()) {
    const std::string_view piece = NextPiece(text);
    TANDEM_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                            tokenizer.Encode(piece, /*add_special_tokens=*/false));
    TANDEM_RETURN_IF_ERROR(builder->Add(ids));
    on_bytes(piece.size());
    text.remove_prefix(piece.size());
  }
  builder->EndDocument();
  return absl::OkStatus();
}

absl::Status Build(const IndexOptions& options, Console& console) {
  TANDEM_ASSIGN_OR_RETURN(const Corpus corpus, FindCorpus(options.corpus, options.output));
  TANDEM_ASSIGN_OR_RETURN(const ModelFolders models, FindModels(options.server));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer,
                          Tokenizer::Load(models.target.folder));
  TANDEM_ASSIGN_OR_RETURN(const std::unique_ptr<RetrievalBuilder> builder,
                          RetrievalBuilder::Create(options.output));
  const auto begin = std::chrono::steady_clock::now();
  size_t num_skipped = 0;
  {
    ProgressLine progress(console);
    uint64_t done = 0;
    const auto on_bytes = [&](size_t bytes) {
      done += bytes;
      progress.Show("tokenizing", static_cast<double>(done) /
                                      static_cast<double>(std::max(corpus.num_bytes, done)));
    };
    for (const fs::path& file : corpus.files) {
      if (access(file.c_str(), R_OK) != 0 && errno != ENOENT) {
        return InvalidArgument(absl::StrCat("CORPUS: ", file.string(), ": ", std::strerror(errno)));
      }
      // A folder may hold pictures beside its texts.
      if (corpus.is_folder && !BeginsLikeText(file)) {
        ++num_skipped;
        continue;
      }
      const absl::StatusOr<std::string> text = ReadTextFile("CORPUS", file.string());
      if (!text.ok() && !corpus.is_folder) return text.status();
      if (text.ok()) {
        TANDEM_RETURN_IF_ERROR(AddText(*text, *tokenizer, on_bytes, builder.get()));
      } else {
        ++num_skipped;
      }
    }
    if (builder->num_documents() == 0) {
      return InvalidArgument(absl::StrCat("CORPUS: ", options.corpus, " holds no file with text"));
    }
    const auto threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
    TANDEM_RETURN_IF_ERROR(builder->Write(tokenizer->Fingerprint(), threads, [&](double sorted) {
      progress.Show("sorting", sorted);
    }));
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::error_code ignored;
  console.out << absl::StrFormat(
      "%s: %d tokens of %d %s, %.1f MB, in %.1f s\n", options.output, builder->num_tokens(),
      builder->num_documents(), builder->num_documents() == 1 ? "document" : "documents",
      static_cast<double>(fs::file_size(options.output, ignored)) / 1e6, seconds.count());
  if (num_skipped > 0) {
    console.err << "left out because it is no UTF-8 text: " << num_skipped
                << (num_skipped == 1 ? " file\n" : " files\n");
  }
  console.out.flush();
  return absl::OkStatus();
}

void BindIndexBuild(FlagParser& parser, IndexOptions& options) {
  parser.BindArgument(
      "CORPUS",
      "The index is of this file of UTF-8 text, or of all files in this folder. Each "
      "file is a document.",
      /*required=*/true, &options.corpus);
  parser.Bind("--output", &options.output);
  parser.Bind("--target", &options.server.target);
  parser.Bind("--models", &options.server.models);
}

}  // namespace

int BuildIndex(const IndexOptions& options, Console& console) {
  const absl::Status status = Build(options, console);
  return status.ok() ? kExitOk : PrintError(status, console);
}

Parsed<IndexOptions> ParseIndexBuild(std::vector<std::string> arguments) {
  return ParseOptions<IndexOptions>(
      Program::kIndexBuild,
      "Makes the index of a corpus, from which the drafter retrieval copies:\n"
      "tandem serve --retrieval FILE.",
      std::move(arguments), BindIndexBuild, [](const FlagParser& parser, IndexOptions&) {
        return parser.IsTyped("--output") ? "" : "--output FILE says where to write the index";
      });
}

}  // namespace tandem::cli
