#include "services/cli/inspect_command.h"

#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/status.h"
#include "services/cli/errors.h"
#include "services/cli/utf8.h"

namespace tandem::cli {

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
    // Quoted and escaped, so that spaces and line ends are seen.
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
  const std::string drafter =
      info->draft_model().empty()
          ? "none"
          : info->draft_model() + (info->drafter_attached() ? "" : " (not attached)");
  const std::vector<std::pair<std::string, std::string>> lines = {
      {"version", info->version()},
      {"model", info->model()},
      {"drafter", drafter},
      {"backend", info->backend()},
      {"context", std::to_string(info->max_context_tokens()) + " tokens"},
      {"vocabulary", std::to_string(info->vocabulary_size()) + " entries"},
      {"slots", std::to_string(info->max_slots())},
      {"draft length", "at most " + std::to_string(info->max_draft_length())},
      {"log-prob ring", info->ring_transport().empty() ? "none" : info->ring_transport()}};
  for (const auto& [name, value] : lines) {
    console.out << absl::StrFormat("%-14s", name) << value << "\n";
  }
  console.out.flush();
  return kExitOk;
}

}  // namespace tandem::cli
