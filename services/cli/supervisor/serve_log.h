// The log of `tandem serve`, with its own lines and the lines of its children.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_

#include <ostream>
#include <string>

#include "services/cli/terminal/palette.h"

namespace tandem::cli {

class ServeLog {
 public:
  // If `json` is true, every line is a JSON object. Otherwise the name of the process precedes each
  // line. `out` must outlive the log.
  ServeLog(bool json, const Palette& palette, std::ostream& out)
      : json_(json), palette_(palette), out_(out) {}

  bool json() const { return json_; }
  // Writes a line of `process`. A child that logs JSON writes complete objects itself. Any other
  // line (a library's warning, the last words of a crash) becomes the message of a new object.
  void Line(const std::string& process, const std::string& line);
  // Writes a line of the supervisor.
  void Say(const std::string& level, const std::string& text);

 private:
  bool json_;
  Palette palette_;
  std::ostream& out_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_
