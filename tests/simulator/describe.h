// Describes a message in one line of the trace.
#ifndef TANDEM_TESTS_SIMULATOR_DESCRIBE_H_
#define TANDEM_TESTS_SIMULATOR_DESCRIBE_H_

#include <string>

#include "tests/simulator/worker/fake_worker.h"

namespace tandem::simulator {

std::string Describe(const WorkerCommand& command);
std::string Describe(const WorkerReply& reply);
std::string Describe(const v1::GenerateResponse& response);

}  // namespace tandem::simulator

#endif  // TANDEM_TESTS_SIMULATOR_DESCRIBE_H_
