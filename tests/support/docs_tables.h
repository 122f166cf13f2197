// Tables of the docs that are made from the code.
#ifndef TANDEM_TESTS_SUPPORT_DOCS_TABLES_H_
#define TANDEM_TESTS_SUPPORT_DOCS_TABLES_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tandem::testing {

// Expects that the page `path` has the text `tables` after `begin` and before "<!-- end -->". With
// TANDEM_UPDATE_DOCS=1, writes it there. `program`: the test that writes it.
inline void ExpectTables(const std::string& path, const std::string& begin,
                         const std::string& tables, const std::string& program) {
  constexpr char kEnd[] = "<!-- end -->\n";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string docs = text.str();
  const size_t found = docs.find(begin);
  const size_t end = docs.find(kEnd);
  ASSERT_NE(found, std::string::npos) << path << " lacks " << begin;
  ASSERT_NE(end, std::string::npos) << path << " lacks " << kEnd;
  const size_t from = found + begin.size();
  if (std::getenv("TANDEM_UPDATE_DOCS") != nullptr) {
    std::ofstream(path) << docs.substr(0, from) << tables << docs.substr(end);
    return;
  }
  EXPECT_EQ(docs.substr(from, end - from), tables)
      << "TANDEM_UPDATE_DOCS=1 " << program << " writes " << path;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_DOCS_TABLES_H_
