/* The C interface of the template engine (src/lib.rs). common/chat/jinja_template.h wraps it for
 * C++. Functions may be called from any thread, and several renders of one template may run at a
 * time. */
#ifndef TANDEM_COMMON_CHAT_JINJA_JINJA_H_
#define TANDEM_COMMON_CHAT_JINJA_JINJA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct TandemJinjaTemplate TandemJinjaTemplate;

/* Any other outcome than OK comes with a message. */
// NOLINTBEGIN(readability-identifier-naming): names of a C interface
typedef enum TandemJinjaOutcome {
  TANDEM_JINJA_OK = 0,
  TANDEM_JINJA_SYNTAX = 1,
  TANDEM_JINJA_RAISED = 2, /* The message is that of raise_exception. */
  TANDEM_JINJA_OUT_OF_STEPS = 3,
  TANDEM_JINJA_TOO_DEEP = 4,
  TANDEM_JINJA_TOO_LONG = 5,
  TANDEM_JINJA_FAILED = 6,
  TANDEM_JINJA_BAD_INPUT = 7,
  TANDEM_JINJA_PANICKED = 8,
  TANDEM_JINJA_OUT_OF_MEMORY = 9,
  TANDEM_JINJA_OUT_OF_TIME = 10,
  TANDEM_JINJA_GIVEN_UP =
      11, /* Renders of this template were stopped by the two above too often. */
} TandemJinjaOutcome;
// NOLINTEND(readability-identifier-naming)

/* For one render. A step is an instruction, or 64 bytes of data that the template makes. */
typedef struct TandemJinjaLimits {
  uint64_t steps;
  uint64_t depth; /* macros, loops and blocks in each other; at most 500 */
  uint64_t output_bytes;
  /* A render that exceeds one of these leaves a sleeping thread and its memory behind. */
  uint64_t memory_bytes;
  uint64_t cpu_nanoseconds;
} TandemJinjaLimits;

/* Not ended by a zero. The receiver frees it with tandem_jinja_free_text. */
typedef struct TandemJinjaText {
  uint8_t* data;
  size_t size;
  size_t capacity;
  uint64_t line; /* where the failure has a line in the template; otherwise 0 */
} TandemJinjaText;

/* strftime_now: writes the time (seconds since 1970) in the format to `out`, and returns how many
 * bytes it wrote; or more than `capacity` if the text does not fit. */
typedef size_t (*TandemJinjaFormatTime)(int64_t time, const char* format, size_t format_size,
                                        char* out, size_t capacity);

/* After OK, *result is a template for tandem_jinja_free. Otherwise *message has the reason. */
TandemJinjaOutcome tandem_jinja_compile(const uint8_t* source, size_t size,
                                        const TandemJinjaLimits* limits,
                                        TandemJinjaFormatTime format_time,
                                        const TandemJinjaTemplate** result,
                                        TandemJinjaText* message);

/* The variables are a map in MessagePack. *text is the output, or the reason. The caller frees it
 * in both cases. */
TandemJinjaOutcome tandem_jinja_render(const TandemJinjaTemplate* jinja_template,
                                       const uint8_t* variables, size_t size, int64_t time,
                                       TandemJinjaText* text);

void tandem_jinja_free(const TandemJinjaTemplate* jinja_template);
void tandem_jinja_free_text(TandemJinjaText* text);

#ifdef __cplusplus
}
#endif

#endif /* TANDEM_COMMON_CHAT_JINJA_JINJA_H_ */
