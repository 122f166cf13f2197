// tandem-flags: prints the table of flags as JSON. It belongs to the build and is not installed.
#include <cstdio>

#include "common/flags/flag_json.h"

int main() { return std::puts(tandem::FlagTableJson().c_str()) == EOF ? 1 : 0; }
