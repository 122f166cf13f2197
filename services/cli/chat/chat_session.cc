#include "services/cli/chat/chat_session.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/text_file.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

namespace {

constexpr char kPrompt[] = "> ";
constexpr char kPromptInside[] = "… ";
// Room that an answer without max_tokens should have, if the context is large enough.
constexpr int kAnswerRoom = 256;

}  // namespace

ChatSession::ChatSession(const Parts& parts, const ChatSettings& settings)
    : parts_(parts),
      settings_(settings),
      texts_(parts.client, /*skips_special_tokens=*/true),
      exit_code_(kExitOk) {}

int ChatSession::Run() {
  if (parts_.is_interactive) Greet();
  while (true) {
    std::string line;
    switch (parts_.reader.Read(collector_.is_open() ? kPromptInside : kPrompt, &line)) {
      case LineReader::Outcome::kInterrupted:
        if (!OnInterrupt()) return exit_code_;
        break;
      case LineReader::Outcome::kEnd:
        // The end of a file also ends a text that is still open.
        if (const auto text = collector_.Take(); text && !parts_.is_interactive) OnText(*text);
        return exit_code_;
      case LineReader::Outcome::kLine:
        if (const auto text = collector_.Add(line); text && !OnText(*text)) return exit_code_;
        break;
    }
  }
}

bool ChatSession::OnInterrupt() {
  if (parts_.interrupt.is_over() || !parts_.is_interactive) {
    return OnError(absl::CancelledError("interrupted"));
  }
  collector_.Take();
  Note("(/quit or Ctrl-D ends the chat)");
  return true;
}

bool ChatSession::OnText(const ChatText& text) {
  const ChatInput input = ParseChatInput(text);
  if (const auto* bad = std::get_if<BadCommand>(&input)) {
    return OnError(InvalidArgument(bad->message));
  }
  if (const auto* command = std::get_if<RunCommand>(&input)) return OnCommand(*command);
  const auto* message = std::get_if<SayToModel>(&input);
  if (message == nullptr) return true;
  if (ValidUtf8Prefix(message->text) != message->text.size()) {
    return OnError(InvalidArgument("the message is not valid UTF-8"));
  }
  conversation_.Say(message->text);
  return Ask();
}

bool ChatSession::OnCommand(const RunCommand& command) {
  absl::Status status;
  switch (command.command) {
    case ChatCommand::kHelp:
      parts_.console.err << ChatHelp() << std::flush;
      break;
    case ChatCommand::kSet:
      status = Set(command.argument);
      break;
    case ChatCommand::kReset:
      Reset();
      break;
    case ChatCommand::kStats:
      parts_.console.err << totals_.Render(Notes()) << std::flush;
      break;
    case ChatCommand::kRetry:
      conversation_.TakeAnswerBack();
      if (conversation_.has_question()) return Ask();
      status = FailedPrecondition("there is no message to answer again");
      break;
    case ChatCommand::kSave:
      status = Save(command.argument);
      break;
    case ChatCommand::kLoad:
      status = Load(command.argument);
      break;
    case ChatCommand::kQuit:
      return false;
  }
  return status.ok() || OnError(status);
}

bool ChatSession::OnError(const absl::Status& status) {
  PrintError(status, parts_.console);
  if (parts_.is_interactive && !parts_.interrupt.is_over()) return true;
  exit_code_ = absl::IsCancelled(status) ? kExitInterrupted : kExitServerError;
  return false;
}

bool ChatSession::Ask() {
  const absl::Status status = Answer();
  if (!parts_.console.out) {
    exit_code_ = PrintError(Unavailable("standard output is closed"), parts_.console);
    return false;
  }
  if (status.ok()) return true;
  if (absl::IsCancelled(status)) return OnError(status);
  PrintServerError(status, parts_.console);
  if (parts_.is_interactive) {
    Note("(the message stays: /retry asks again, /reset begins anew)");
    return true;
  }
  exit_code_ = kExitServerError;
  return false;
}

absl::Status ChatSession::Answer() {
  TANDEM_RETURN_IF_ERROR(FitIntoContext());
  v1::GenerateRequest request = settings_.request;
  *request.mutable_chat() = MakeChat();
  std::ostream& out = parts_.console.out;
  TokenPrinter printer({.color = WantsColor(settings_.color, parts_.console.out_is_terminal),
                        .may_be_held_back = request.sampling_params().stop_size() > 0},
                       texts_, parts_.console);
  std::string text;
  int64_t num_tokens = 0;
  const auto response = parts_.client.Generate(request, [&](const v1::GenerateResponse& message) {
    text += message.text();
    num_tokens += message.token_ids_size();
    return printer.Print(message) && !parts_.interrupt.is_raised();
  });
  if (!text.ends_with('\n') && (response.ok() || !text.empty())) out << "\n";
  out.flush();
  const bool was_stopped = parts_.is_interactive && parts_.interrupt.Take();
  if (response.ok()) {
    conversation_.Answer(std::move(text));
    return OnAnswered(response->completion());
  }
  if (!was_stopped || parts_.interrupt.is_over() || !absl::IsCancelled(response.status())) {
    return response.status();
  }
  conversation_.Answer(std::move(text));
  totals_.AddStopped(num_tokens);
  Note(absl::StrCat("stopped after ", num_tokens, num_tokens == 1 ? " token" : " tokens",
                    "; the answer stays as far as it came"));
  return absl::OkStatus();
}

absl::Status ChatSession::OnAnswered(const v1::Completion& completion) {
  totals_.Add(completion);
  std::string costs = AnswerCosts(completion);
  if (completion.finish_reason() == v1::FINISH_REASON_LENGTH) {
    const int used = completion.usage().prompt_tokens() + completion.usage().completion_tokens();
    costs += used >= parts_.served.max_context_tokens()
                 ? absl::StrCat("; cut, because the context of ",
                                parts_.served.max_context_tokens(), " tokens is full")
                 : "; cut at max_tokens";
  }
  Note(costs);
  for (const std::string& warning : completion.warnings()) Note("warning: " + warning);
  return absl::OkStatus();
}

absl::Status ChatSession::FitIntoContext() {
  const int context = parts_.served.max_context_tokens();
  const v1::SamplingParams& params = settings_.request.sampling_params();
  const int room =
      std::min(params.has_max_tokens() ? params.max_tokens() : kAnswerRoom, context / 4);
  int num_forgotten = 0;
  while (true) {
    TANDEM_ASSIGN_OR_RETURN(const v1::TokenizeResponse rendered, parts_.client.Render(MakeChat()));
    // A single message that is too long is left to the server to refuse.
    if (rendered.ids_size() + room <= context || !conversation_.ForgetOldest()) break;
    ++num_forgotten;
  }
  if (num_forgotten > 0) {
    Note(absl::StrCat("The context of ", context, " tokens is full: the oldest ",
                      num_forgotten == 1
                          ? "message and its answer were"
                          : absl::StrCat(num_forgotten, " messages and their answers were"),
                      " forgotten. /reset begins anew."));
  }
  return absl::OkStatus();
}

absl::Status ChatSession::Set(const std::string& argument) {
  const size_t end = argument.find_first_of(" \t\n");
  const std::string name = argument.substr(0, end);
  if (name.empty()) {
    parts_.console.err << ListSettings(settings_) << std::flush;
    return absl::OkStatus();
  }
  if (end != std::string::npos) {
    const std::string value = argument.substr(argument.find_first_not_of(" \t\n", end));
    TANDEM_RETURN_IF_ERROR(ChangeSetting(name, value, parts_.served, &settings_));
  }
  TANDEM_ASSIGN_OR_RETURN(const std::string line, ShowSetting(name, settings_));
  parts_.console.err << line << std::flush;
  return absl::OkStatus();
}

absl::Status ChatSession::Save(const std::string& path) {
  Conversation saved = conversation_;
  saved.SetSystem(settings_.system);
  const std::string text = saved.ToJson();
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text << std::flush;
  if (!file) return Unavailable("/save: cannot write " + path);
  Note(absl::StrCat(saved.ToChat().messages_size(), " messages are in ", path));
  return absl::OkStatus();
}

absl::Status ChatSession::Load(const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const std::string text, ReadTextFile("/load", path));
  absl::StatusOr<Conversation> loaded = Conversation::FromJson(text);
  if (!loaded.ok()) {
    return InvalidArgument(absl::StrCat("/load: ", path, ": ", loaded.status().message()));
  }
  Reset();
  settings_.system = loaded->system();
  conversation_ = *std::move(loaded);
  Note(absl::StrCat("goes on after ", conversation_.ToChat().messages_size(), " messages"));
  return absl::OkStatus();
}

void ChatSession::Reset() {
  conversation_.Reset();
  totals_ = ChatTotals();
}

v1::Chat ChatSession::MakeChat() const {
  Conversation conversation = conversation_;
  conversation.SetSystem(settings_.system);
  v1::Chat chat = conversation.ToChat();
  chat.set_template_kwargs_json(settings_.template_kwargs);
  return chat;
}

void ChatSession::Greet() {
  Note(parts_.served.model() +
       ": /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat");
  if (const std::string legend = Notes().Legend(); !legend.empty()) {
    parts_.console.err << legend << std::endl;
  }
}

void ChatSession::Note(const std::string& text) {
  parts_.console.err << Notes().Dim(VisibleText(text)) << std::endl;
}

Palette ChatSession::Notes() const {
  return Palette(WantsColor(settings_.color, parts_.console.err_is_terminal));
}

}  // namespace tandem::cli
