// Reads lines with libedit.
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

#include "services/cli/chat/line_reader.h"

namespace tandem::cli {

namespace {

class EditingReader final : public LineReader {
 public:
  EditingReader(Interrupt& interrupt, LineHistory& lines)
      : interrupt_(interrupt),
        lines_(lines),
        editor_(el_init("tandem", stdin, stdout, stderr)),
        history_(history_init()) {
    HistEvent event;
    history(history_, &event, H_SETSIZE, static_cast<int>(LineHistory::kMostLines));
    for (const std::string& line : lines_.Load()) history(history_, &event, H_ENTER, line.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &PromptOf);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_GETCFN, &ReadCharacter);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_, nullptr);  // what the user set for all programs with libedit
  }
  ~EditingReader() override {
    el_end(editor_);
    history_end(history_);
  }
  EditingReader(const EditingReader&) = delete;
  EditingReader& operator=(const EditingReader&) = delete;

  Outcome Read(const std::string& prompt, std::string* line) override {
    prompt_ = prompt;
    was_interrupted_ = false;
    el_resize(editor_);
    int size = 0;
    const char* const text = el_gets(editor_, &size);
    if (was_interrupted_) {
      interrupt_.Take();
      std::fputs("^C\n", stdout);
      std::fflush(stdout);
      return Outcome::kInterrupted;
    }
    if (text == nullptr || size <= 0) {
      std::fputs("\n", stdout);
      std::fflush(stdout);
      return Outcome::kEnd;
    }
    line->assign(text, static_cast<size_t>(size));
    while (line->ends_with('\n') || line->ends_with('\r')) line->pop_back();
    if (lines_.Add(*line)) {
      HistEvent event;
      history(history_, &event, H_ENTER, line->c_str());
    }
    return Outcome::kLine;
  }

 private:
  static EditingReader* ReaderOf(EditLine* editor) {
    void* reader = nullptr;
    el_get(editor, EL_CLIENTDATA, &reader);
    return static_cast<EditingReader*>(reader);
  }

  static char* PromptOf(EditLine* editor) { return ReaderOf(editor)->prompt_.data(); }

  // Returns 1 for a character, 0 at the end, and -1 if the reader gives up.
  static int ReadCharacter(EditLine* editor, wchar_t* character) {
    EditingReader* const reader = ReaderOf(editor);
    std::mbstate_t state{};
    while (true) {
      if (!AwaitInput(STDIN_FILENO, reader->interrupt_)) {
        reader->was_interrupted_ = true;
        return -1;
      }
      char byte = 0;
      const ssize_t size = read(STDIN_FILENO, &byte, 1);
      if (size <= 0) return static_cast<int>(size);
      const size_t used = std::mbrtowc(character, &byte, 1, &state);
      if (used == static_cast<size_t>(-2)) continue;  // more bytes belong to the character
      if (used != static_cast<size_t>(-1)) return 1;
      state = {};  // no character: it is left out
    }
  }

  Interrupt& interrupt_;
  LineHistory& lines_;
  EditLine* const editor_;
  History* const history_;
  std::string prompt_;
  bool was_interrupted_ = false;
};

}  // namespace

std::unique_ptr<LineReader> NewEditingReader(Interrupt& interrupt, LineHistory& history) {
  const char* const terminal = std::getenv("TERM");
  if (terminal == nullptr || *terminal == '\0' || std::string(terminal) == "dumb") return nullptr;
  // Characters have several bytes in every locale, because texts of models have.
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  return std::make_unique<EditingReader>(interrupt, history);
}

}  // namespace tandem::cli
