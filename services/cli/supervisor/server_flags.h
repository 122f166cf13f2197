// Flags that several commands have: those of the server that a command talks to, and those of a
// private server that the command starts.
#ifndef TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_FLAGS_H_
#define TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_FLAGS_H_

#include <string>

#include "common/flags/flag_parser.h"
#include "services/cli/client/client_security.h"
#include "services/cli/supervisor/server_options.h"
#include "services/cli/supervisor/server_session.h"

namespace tandem::cli {

// Binds the flags of every command that starts a server: the models, the time to start, and all
// flags that the processes get as they were given.
void BindServer(FlagParser& parser, ServerOptions& server);

// Binds TLS and the token of a client.
void BindClientSecurity(FlagParser& parser, ClientSecurityOptions& security);

// Binds the flags of every command that talks to a server.
void BindSession(FlagParser& parser, SessionOptions& session);

// Returns an error message if the flags of BindSession do not fit together. With --connect, models
// from environment variables are cleared, because a running server has its models already.
std::string CheckSession(const FlagParser& parser, SessionOptions& session);

}  // namespace tandem::cli

#endif  // TANDEM_SERVICES_CLI_SUPERVISOR_SERVER_FLAGS_H_
