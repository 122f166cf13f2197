// The one log of `tandem serve`: its own lines and its children's.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_

#include <ostream>
#include <string>

#include "services/cli/terminal/palette.h"

namespace tandem::cli {

class ServeLog {
 public:
  // json: every line is a JSON object; else the process's name goes before it. `out` must outlive it.
  ServeLog(bool json, const Palette& palette, std::ostream& out)
      : json_(json), palette_(palette), out_(out) {}

  bool json() const { return json_; }
  // What `process` wrote. A child that logs JSON wrote such an object itself; whatever else comes out
  // of it (a library's warning, the last words of a crash) becomes the message of one.
  void Line(const std::string& process, const std::string& line);
  // What the supervisor has to say.
  void Say(const std::string& level, const std::string& text);

 private:
  bool json_;
  Palette palette_;
  std::ostream& out_;
};

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVE_LOG_H_
