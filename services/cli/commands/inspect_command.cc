#include "services/cli/commands/inspect_command.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "services/cli/supervisor/server_flags.h"
#include "services/cli/terminal/errors.h"
#include "services/cli/terminal/option_parser.h"
#include "services/cli/terminal/utf8.h"

namespace tandem::cli {

namespace {

void BindTokenize(FlagParser& parser, TokenizeOptions& options) {
  parser.BindArgument("TEXT", "This text is tokenized. - stands for standard input.",
                      /*required=*/true, &options.text);
  parser.Bind("--no-special-tokens", &options.no_special_tokens);
  parser.Bind("--pieces", &options.pieces);
  BindSession(parser, options.session);
}

}  // namespace

int Tokenize(const TokenizeOptions& options, Console& console) {
  std::string text = options.text;
  if (text == "-") text.assign(std::istreambuf_iterator<char>(console.in), {});
  if (const size_t valid = ValidUtf8Prefix(text); valid != text.size()) {
    return PrintError(
        InvalidArgument("text: byte " + std::to_string(valid) + " is not valid UTF-8"), console);
  }
  SessionOptions session_options = options.session;
  session_options.server.drafter = "none";  // a private server needs no drafter for this
  auto session = ServerSession::Open(session_options, console);
  if (!session.ok()) return PrintError(session.status(), console);
  GenerationClient& client = (*session)->client();
  const auto ids = client.Tokenize(text, !options.no_special_tokens);
  if (!ids.ok()) return PrintServerError(ids.status(), console);
  if (!options.pieces) {
    console.out << absl::StrJoin(*ids, " ") << std::endl;
    return kExitOk;
  }
  for (int32_t id : *ids) {
    const auto piece = client.Detokenize({id}, /*skip_special_tokens=*/false);
    if (!piece.ok()) return PrintServerError(piece.status(), console);
    // The text is quoted and escaped, so that spaces and line ends are visible.
    console.out << absl::StrFormat("%7d  ", id) << nlohmann::json(*piece).dump() << "\n";
  }
  console.out.flush();
  return kExitOk;
}

int Info(const SessionOptions& options, Console& console) {
  auto session = ServerSession::Open(options, console);
  if (!session.ok()) return PrintError(session.status(), console);
  const auto info = (*session)->client().GetServerInfo();
  if (!info.ok()) return PrintServerError(info.status(), console);
  const std::string drafter = info->drafter_attached() ? info->draft_model()
                              : info->drafter_problem().empty()
                                  ? "none"
                                  : "none: " + info->drafter_problem();
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"version", info->version()},
      {"model", info->model()},
      {"draft model", drafter},
      {"drafters", absl::StrJoin(info->drafters(), ", ")},
      {"backend", info->backend()},
      {"numerics", info->numerics_id()},
      {"context", std::to_string(info->max_context_tokens()) + " tokens"},
      {"vocabulary", std::to_string(info->vocabulary_size()) + " entries"},
      {"slots", std::to_string(info->max_slots())},
      {"draft length", "at most " + std::to_string(info->max_draft_length())},
      {"draft trees", info->max_tree_nodes() == 0
                          ? "none"
                          : "of at most " + std::to_string(info->max_tree_nodes()) + " tokens"},
      {"log-prob ring", info->ring_transport().empty() ? "none" : info->ring_transport()}};
  for (const auto& [name, value] : lines) {
    console.out << absl::StrFormat("%-14s", name) << value << "\n";
  }
  console.out.flush();
  return kExitOk;
}

Parsed<TokenizeOptions> ParseTokenize(std::vector<std::string> arguments) {
  return ParseOptions<TokenizeOptions>(Program::kTokenize, "Prints the token ids of a text.",
                                       std::move(arguments), BindTokenize,
                                       [](const FlagParser& parser, TokenizeOptions& options) {
                                         return CheckSession(parser, options.session);
                                       });
}

Parsed<InfoArguments> ParseInfo(std::vector<std::string> arguments) {
  return ParseOptions<InfoArguments>(
      Program::kInfo, "Prints the models and limits of a server.", std::move(arguments),
      [](FlagParser& parser, InfoArguments& info) { BindSession(parser, info.session); },
      [](const FlagParser& parser, InfoArguments& info) {
        return CheckSession(parser, info.session);
      });
}

}  // namespace tandem::cli
