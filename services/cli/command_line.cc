#include "services/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "common/rpc/heartbeat.h"

namespace tandem::cli {

namespace {

constexpr char kOverview[] =
    R"(Tandem: lossless speculative decoding as a service. A small draft model guesses, the target model checks, and you
get exactly what the target alone would have said, sooner.

Usage: tandem COMMAND [OPTIONS]

Commands:
  serve        start the router and its two workers, keep them running, serve until Ctrl-C
  generate     stream the completion of a prompt, coloured by how each token came about
  bench        measure speedup and acceptance over prompts and draft lengths
  bench serve  put a load of many clients on a server: throughput, latencies, what limits them
  tokenize     print the token ids of a text
  info         print what a server serves
  top          watch a server: tokens per second, acceptance, rounds, events
  healthcheck  exit with 0 when a process is ready

Without --connect ADDRESS (or TANDEM_ADDRESS) a command starts a private server for as long as it runs. Without
--target the small pair of models that comes with Tandem is used.

  tandem generate --compare --temperature 0 "Once upon a time there was a king who"
  tandem serve --target Llama-3.2-3B-Instruct --draft Llama-3.2-1B-Instruct --draft-length 4
  tandem generate --connect 127.0.0.1:50051 "The three rules of robotics are"

tandem COMMAND --help lists the options of a command.
)";

constexpr char kFooter[] =
    "\nEvery option can also be set in the environment: --top-p is TANDEM_TOP_P, --compare is "
    "TANDEM_COMPARE=true, and so on\n(--connect is TANDEM_ADDRESS). The command line goes first.";

// CLI11's own layout with the environment variable of each option left out: the footer states the rule once.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter() {
    column_width(30);
    label("Positionals", "Arguments");
  }

  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::string negated = "{false}";
    const size_t found = name.find(negated);
    return found == std::string::npos ? name : name.erase(found, negated.size());
  }
  // Without the range: the descriptions say what people need of it, and errors the rest.
  // It comes after a colon, so that a type's own name has none.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string type = option->get_type_name();
    return option->get_type_size() == 0 || type.empty() ? "" : " " + type.substr(0, type.find(':'));
  }
  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    std::string usage = "\nUsage: " + app->get_name() + " [OPTIONS]";
    for (const CLI::Option* option : app->get_options()) {
      if (option->get_positional()) usage += " " + option->get_name(true);
    }
    return usage + "\n";
  }
};

// CLI11 puts two between groups, and how it joins them is not virtual.
std::string WithoutDoubleBlankLines(std::string text) {
  for (size_t at; (at = text.find("\n\n\n")) != std::string::npos;) text.erase(at, 1);
  return text;
}

std::unique_ptr<CLI::App> MakeApp(const std::string& name, const std::string& description) {
  auto app = std::make_unique<CLI::App>(description, "tandem " + name);
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "this text");
  app->footer(kFooter);
  return app;
}

void UseEnvironment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option == app.get_help_ptr()) continue;
    std::string name = option->get_lnames().front();
    if (name == "connect") name = "address";
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(c));
    option->envname("TANDEM_" + name);
  }
}

// An option that calls a setter of a message: what is not said stays unset there.
template <typename Value>
CLI::Option* AddSetter(CLI::App& app, const std::string& name, const std::string& type,
                       const std::string& description,
                       const std::function<void(const Value&)>& set) {
  return app.add_option_function<Value>(name, set, description)->type_name(type);
}

// Given once for each value; another argument after the value is not taken for one more.
template <typename Value>
CLI::Option* AddRepeated(CLI::App& app, const std::string& name, const std::string& type,
                         const std::string& description,
                         const std::function<void(const Value&)>& add) {
  return app
      .add_option_function<std::vector<Value>>(
          name,
          [add](const std::vector<Value>& values) {
            for (const Value& value : values) add(value);
          },
          description)
      ->type_name(type)
      ->allow_extra_args(false);
}

// A number of draft tokens, or auto. Returns what is wrong.
std::string CheckDraftLength(const std::string& text) {
  if (text == "auto") return "";
  const char* end = text.data() + text.size();
  uint32_t length = 0;
  const auto parsed = std::from_chars(text.data(), end, length);
  if (parsed.ec == std::errc() && parsed.ptr == end && length <= 1 << 20) return "";
  return "got \"" + text + "\", want auto or a number of tokens, 0 or more";
}

void AddColor(CLI::App& app, ColorMode& color) {
  static const std::map<std::string, ColorMode> kModes = {
      {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};
  app.add_option_function<std::string>(
         "--color", [&color](const std::string& mode) { color = kModes.at(mode); },
         "colours: auto (on a terminal, unless NO_COLOR is set), always or never")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->type_name("WHEN")
      ->group("Output");
}

void AddModels(CLI::App& app, ServerOptions& server) {
  const std::string group = "Models";
  app.add_option("--target", server.target, "folder of the target model (Hugging Face layout)")
      ->type_name("DIR")
      ->group(group);
  app.add_option("--draft", server.draft,
                 "folder of the draft model; it shares the target's tokenizer")
      ->type_name("DIR")
      ->group(group);
  app.add_option("--models", server.models, "where tales/, the embedded pair, is to be found")
      ->type_name("DIR")
      ->group(group);
}

// Checked by the router, which knows their ranges.
struct RouterFlag {
  const char* name;
  const char* type;
  const char* help;
};
constexpr RouterFlag kRouterFlags[] = {
    {"--step-rows", "N", "rows of one batch: how much of a prompt is worked off at once (512)"},
    {"--step-seconds", "S",
     "while others decode, prompts get about so much time between two of their rounds (0.2)"},
    {"--cohorts", "1|2", "2: drafts for one half of the requests while the other is verified (1)"},
    {"--max-crashes", "N",
     "a request that was computed by so many dying verifiers in a row is refused (2)"},
};

void AddResources(CLI::App& app, ServerOptions& server) {
  const std::string group = "Resources";
  const CLI::Range positive(1, 1 << 30);
  app.add_option("--threads", server.threads, "compute threads of each worker (default: all cores)")
      ->check(positive)
      ->type_name("N")
      ->group(group);
  app.add_option("--max-slots", server.max_slots, "sequences that run at once (32)")
      ->check(positive)
      ->type_name("N")
      ->group(group);
  app.add_option(
         "--max-context", server.max_context,
         "tokens of a sequence, prompt included (default: the model's limit, or what the KV cache "
         "holds)")
      ->check(positive)
      ->type_name("N")
      ->group(group);
  const CLI::AsSizeValue size(/*kb_is_1000=*/false);
  app.add_option("--kv-cache-bytes", server.kv_cache_bytes,
                 "keys and values of the target, prefix cache included, such as 4G (default: a "
                 "quarter of the memory, or what all slots can fill)")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--draft-kv-cache-bytes", server.draft_kv_cache_bytes,
                 "the same of the drafter (default likewise)")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--backend", server.backend,
                 "what the workers compute on: cpu, cuda (both on one NVIDIA GPU), or auto: cuda "
                 "where it can be had (default: cpu)")
      ->check(CLI::IsMember({"cpu", "cuda", "auto"}))
      ->type_name("KIND")
      ->group(group);
  app.add_option("--gpu", server.gpu, "which GPU, as the driver counts them (default: 0)")
      ->check(CLI::Range(0, 1023))
      ->type_name("N")
      ->group(group);
  app.add_option("--gpu-memory-bytes", server.gpu_memory_bytes,
                 "device memory of the target's worker: weights, scratch and KV cache, taken at "
                 "start (default: what these take, within two fifths of the GPU's)")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--draft-gpu-memory-bytes", server.draft_gpu_memory_bytes,
                 "the same of the drafter (default likewise)")
      ->transform(size)
      ->check(CLI::PositiveNumber)
      ->type_name("BYTES")
      ->group(group);
  app.add_option("--transport", server.transport,
                 "of log-probabilities from drafter to verifier: auto, cuda_ipc, shm or inline")
      ->check(CLI::IsMember({"auto", "cuda_ipc", "shm", "inline"}))
      ->type_name("KIND")
      ->group(group);
  for (const RouterFlag& flag : kRouterFlags) {
    AddSetter<std::string>(app, flag.name, flag.type, flag.help,
                           [&server, name = flag.name](const std::string& value) {
                             server.router_flags[name] = value;
                           })
        ->group(group);
  }
  app.add_option("--start-seconds", server.start_seconds,
                 "a process that is not ready after this many seconds is killed (600)")
      ->check(positive)
      ->type_name("N")
      ->group(group);
}

void AddFile(CLI::App& app, const char* name, std::string& path, const char* description,
             const char* group) {
  app.add_option(name, path, description)->type_name("FILE")->group(group);
}

void AddClientSecurity(CLI::App& app, ClientSecurityOptions& security) {
  const auto file = [&](const char* name, std::string& path, const char* description) {
    AddFile(app, name, path, description, "Server");
  };
  file("--tls-ca", security.tls.authorities,
       "PEM: speak TLS, with a server whose certificate one of these signed");
  file("--tls-certificate", security.tls.certificate,
       "PEM: shown to a server that wants to know who comes");
  file("--tls-key", security.tls.key, "PEM: key of the certificate");
  file("--token-file", security.token_file, "show the first token of this file");
  app.add_flag("--insecure", security.insecure,
               "show it without TLS to other machines too, where anybody on the way can take it")
      ->group("Server");
}

// For every command that talks to a server.
void AddSession(CLI::App& app, SessionOptions& session) {
  app.add_option("--connect", session.connect, "a running server: HOST:PORT or unix:PATH")
      ->type_name("ADDRESS")
      ->group("Server");
  AddClientSecurity(app, session.security);
  app.add_flag("--verbose", session.server.verbose, "show the private server's log")
      ->group("Server");
  AddModels(app, session.server);
  AddResources(app, session.server);
}

void AddSampling(CLI::App& app, v1::GenerateRequest& request) {
  v1::SamplingParams* params = request.mutable_sampling_params();
  const std::string group = "Sampling";
  AddSetter<float>(app, "--temperature", "T", "0 is greedy (default 1)", [=](float v) {
    params->set_temperature(v);
  })->group(group);
  AddSetter<float>(app, "--top-p", "P", "keep the likeliest tokens up to this mass, (0, 1]",
                   [=](float v) { params->set_top_p(v); })
      ->group(group);
  AddSetter<int32_t>(app, "--top-k", "K", "keep the K likeliest tokens; 0 or -1: all",
                     [=](int32_t v) { params->set_top_k(v); })
      ->group(group);
  AddSetter<float>(app, "--min-p", "P", "drop tokens under P times the likeliest, [0, 1]",
                   [=](float v) { params->set_min_p(v); })
      ->group(group);
  AddSetter<float>(app, "--repetition-penalty", "X", "over prompt and output; 1: none",
                   [=](float v) { params->set_repetition_penalty(v); })
      ->group(group);
  AddSetter<float>(app, "--presence-penalty", "X", "over the output, [-2, 2]", [=](float v) {
    params->set_presence_penalty(v);
  })->group(group);
  AddSetter<float>(app, "--frequency-penalty", "X", "over the output, [-2, 2]", [=](float v) {
    params->set_frequency_penalty(v);
  })->group(group);
  AddRepeated<std::string>(
      app, "--logit-bias", "ID=B", "add B to the logit of a token; repeatable",
      [=](const std::string& text) {
        const char* end = text.data() + text.size();
        int32_t id = 0;
        float bias = 0;
        const auto id_end = std::from_chars(text.data(), end, id);
        if (id_end.ec == std::errc() && id_end.ptr != end && *id_end.ptr == '=') {
          const auto bias_end = std::from_chars(id_end.ptr + 1, end, bias);
          if (bias_end.ec == std::errc() && bias_end.ptr == end) {
            (*params->mutable_logit_bias())[id] = bias;
            return;
          }
        }
        throw CLI::ValidationError("--logit-bias", "got \"" + text +
                                                       "\", want ID=B such as "
                                                       "42=-1.5");
      })
      ->group(group);
  AddSetter<uint64_t>(app, "--seed", "N", "makes the output reproducible (see --no-reproducible)",
                      [=](uint64_t v) { params->set_seed(v); })
      ->group(group);
}

void AddLimits(CLI::App& app, v1::GenerateRequest& request) {
  v1::SamplingParams* params = request.mutable_sampling_params();
  const std::string group = "Length and stops";
  AddSetter<int32_t>(app, "-n,--max-tokens", "N", "at most N tokens (default 256)", [=](int32_t v) {
    params->set_max_tokens(v);
  })->group(group);
  AddSetter<int32_t>(app, "--min-tokens", "N", "no stop and no end of text before N tokens",
                     [=](int32_t v) { params->set_min_tokens(v); })
      ->group(group);
  AddRepeated<std::string>(app, "--stop", "TEXT", "stop before this text; repeatable",
                           [=](const std::string& v) { params->add_stop(v); })
      ->group(group);
  AddRepeated<int32_t>(app, "--stop-token-id", "ID", "stop at this token; repeatable",
                       [=](int32_t v) { params->add_stop_token_ids(v); })
      ->group(group);
  app.add_flag_function(
         "--ignore-eos", [=](std::int64_t n) { params->set_ignore_eos(n > 0); },
         "go on after the end of text")
      ->group(group);
  app.add_flag_function(
         "--include-stop", [=](std::int64_t n) { params->set_include_stop_str_in_output(n > 0); },
         "keep the text that stopped it")
      ->group(group);
}

void AddSpeculation(CLI::App& app, v1::GenerateRequest& request, ServerOptions& server) {
  v1::SpeculationParams* params = request.mutable_speculation();
  const std::string group = "Speculation";
  AddSetter<int32_t>(app, "--draft-length", "K",
                     "draft tokens a round (default: the server's choice)",
                     [=](int32_t v) { params->set_draft_length(v); })
      ->group(group);
  app.add_flag_function(
         "--no-draft", [=](std::int64_t n) { params->set_enabled(n <= 0); },
         "decode without a drafter")
      ->group(group);
  AddSetter<std::string>(app, "--drafter", "NAME", "one of the server's drafters, or none",
                         [=, &server](const std::string& v) {
                           if (v == "none") {
                             params->set_enabled(false);
                             server.drafter = "none";
                           } else if (v != "model") {
                             params->set_drafter(v);
                           }
                         })
      ->group(group);
  app.add_flag_function(
         "--reproducible,!--no-reproducible",
         [=](std::int64_t n) { params->set_reproducible(n > 0); },
         "the same output with any drafter, draft length or none (default with --seed)")
      ->group(group);
  AddSetter<float>(app, "--lenience", "L",
                   "under 1 accepts more and changes the output distribution (default 1: lossless)",
                   [=](float v) { params->set_lenience(v); })
      ->group(group);
}

void AddServerSecurity(CLI::App& app, ServerOptions& server) {
  const auto file = [&](const char* name, std::string& path, const char* description) {
    AddFile(app, name, path, description, "Security");
  };
  ServerSecurityOptions& security = server.security;
  file("--tls-certificate", security.tls.certificate,
       "PEM: speak TLS on --listen (not on a Unix socket) and --admin; read again when it changes, "
       "as the other files are");
  file("--tls-key", security.tls.key, "PEM: key of the certificate");
  file("--tls-client-ca", security.tls.authorities,
       "PEM: clients of --listen must show a certificate that one of these signed");
  file("--token-file", security.token_file,
       "lines `client TOKEN` or `admin TOKEN`: every call, and every page of --admin but the "
       "probes', needs one");
  app.add_flag("--insecure", server.insecure,
               "allow addresses that other machines can reach, without TLS or tokens")
      ->group("Security");
}

void AddServe(CLI::App& app, ServeArguments& serve) {
  ServerOptions& server = serve.server;
  app.add_option("--listen", server.listen,
                 "HOST:PORT or unix:PATH; port 0 picks a free one (127.0.0.1:50051)")
      ->type_name("ADDRESS")
      ->group("Server");
  server.admin = "auto";
  app.add_option("--admin", server.admin,
                 "metrics and health over HTTP: HOST:PORT of the router, the next two ports being "
                 "the workers'; or none (auto: 127.0.0.1:9464, or free ones where that is taken)")
      ->type_name("ADDRESS")
      ->group("Server");
  AddServerSecurity(app, server);
  app.add_option("--max-queue", server.max_queue, "requests that may wait")
      ->check(CLI::Range(0, 1 << 30))
      ->type_name("N")
      ->group("Server");
  app.add_option("--drain-seconds", server.drain_seconds,
                 "time that running streams have to finish when it is told to stop (30)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group("Server");
  app.add_option("--audit-fraction", server.audit_fraction,
                 "share of requests that the lossless audit looks at (0)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("F")
      ->group("Server");
  app.add_flag("--audit-fails-readiness", server.audit_fails_readiness,
               "not ready any more once the audit found a difference")
      ->group("Server");
  app.add_option("--heartbeat-timeout", server.heartbeat_timeout,
                 "a worker that gives no sign of life for so many seconds is killed and started "
                 "again, 1 or more; 0: never (3)")
      ->check(CLI::Range(0.0, 0.0) | CLI::Range(kShortestHeartbeatTimeoutSeconds, 86400.0))
      ->type_name("S")
      ->group("Server");
  AddModels(app, server);
  app.add_option("--drafter", server.drafter, "model (default), or none: decode plainly")
      ->check(CLI::IsMember({"none", "model"}))
      ->type_name("KIND")
      ->group("Speculation");
  app.add_option("--draft-length", server.draft_length,
                 "draft tokens a round, for requests that do not say: a number, or auto, what pays "
                 "by measured costs and acceptance (auto)")
      ->check(CheckDraftLength)
      ->type_name("K")
      ->group("Speculation");
  AddResources(app, server);
  app.add_option("--log-format", server.log_format, "text (default), or json: one object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->type_name("FORMAT")
      ->group("Output");
  app.add_flag("--log-prompts", server.log_prompts,
               "log the prompts of requests, texts and token ids (else neither)")
      ->group("Output");
  AddColor(app, serve.color);
}

void AddGenerate(CLI::App& app, GenerateOptions& options) {
  app.add_option("PROMPT", options.prompt, "the text to continue; - reads standard input")
      ->type_name("");
  app.add_option("--prompt-file", options.prompt_file, "read the prompt from a file")
      ->type_name("FILE")
      ->group("Prompt");
  app.add_flag_function(
         "--no-special-tokens",
         [&options](std::int64_t n) { options.request.set_add_special_tokens(n <= 0); },
         "do not put the beginning-of-text token first")
      ->group("Prompt");
  app.add_flag("--echo", options.echo, "print the prompt too (always on a terminal)")
      ->group("Output");
  app.add_flag("--compare", options.compare,
               "decode again without drafting: speedup, and whether the text is the same")
      ->group("Output");
  app.add_flag("--json", options.json, "one JSON object at the end instead of text")
      ->group("Output");
  AddColor(app, options.color);
  v1::SamplingParams* params = options.request.mutable_sampling_params();
  app.add_flag_function(
         "--no-skip-special", [=](std::int64_t n) { params->set_skip_special_tokens(n <= 0); },
         "show special tokens")
      ->group("Output");
  AddSetter<int32_t>(app, "--logprobs", "N",
                     "log-probabilities of the N likeliest tokens, with --json",
                     [=](int32_t v) { params->set_logprobs(v); })
      ->group("Output");
  AddSampling(app, options.request);
  AddLimits(app, options.request);
  AddSpeculation(app, options.request, options.session.server);
  AddSession(app, options.session);
}

void AddBench(CLI::App& app, BenchOptions& options) {
  const std::string group = "Measurement";
  app.add_option("--prompts", options.prompts, "one prompt a line (default: six openings of tales)")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--draft-lengths", options.draft_lengths,
                 "comma-separated numbers, or auto, as the server chooses (0,1,2,4,6,8); plain "
                 "decoding is always measured")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->transform(CLI::Validator(
          [](std::string& text) {
            std::string problem = CheckDraftLength(text);
            if (text == "auto") text = std::to_string(kAutoDraftLength);
            return problem;
          },
          ""))
      ->type_name("K,K,…")
      ->group(group);
  app.add_option("--modes", options.modes, "comma-separated: greedy, sampled (default: both)")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember({"greedy", "sampled"}))
      ->type_name("MODE,…")
      ->group(group);
  app.add_option("--pairs", options.pairs,
                 "runs of each draft length, each beside one of plain decoding (20)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--max-tokens", options.max_tokens, "tokens of a run; end of text is ignored (96)")
      ->check(CLI::Range(2, 1 << 20))
      ->type_name("N")
      ->group(group);
  app.add_option("--temperature", options.temperature, "of the mode sampled (1)")
      ->type_name("T")
      ->group(group);
  app.add_option("--seed", options.seed, "of the first sampled run (1)")
      ->type_name("N")
      ->group(group);
  app.add_option("--json", options.json, "write all numbers there")
      ->type_name("FILE")
      ->group("Output");
  AddColor(app, options.color);
  AddSession(app, options.session);
}

// A list of one or more values between commas.
template <typename Value>
CLI::Option* AddList(CLI::App& app, const std::string& name, std::vector<Value>& values,
                     const std::string& type, const std::string& description) {
  return app.add_option(name, values, description)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name(type);
}

void AddLength(CLI::App& app, const std::string& name, const std::string& description,
               const std::function<void(LengthDistribution)>& set) {
  app.add_option_function<std::string>(
         name,
         [=](const std::string& text) {
           const auto length = LengthDistribution::Parse(text);
           if (!length.ok()) {
             throw CLI::ValidationError(name, std::string(length.status().message()));
           }
           set(*length);
         },
         description)
      ->type_name("DIST")
      ->group("Requests");
}

void AddBenchServe(CLI::App& app, BenchServeOptions& options) {
  const std::string load = "Load";
  const CLI::Range positive(1, 1 << 20);
  AddList(app, "--clients", options.clients, "N,N,…",
          "clients that each send a request when their last one ended (1,2,4,8,16,32)")
      ->check(CLI::Range(1, 16384))
      ->group(load);
  AddList(app, "--rate", options.rates, "R,R,…",
          "instead: requests a second that come by chance (Poisson), however many still run")
      ->check(CLI::Range(1e-3, 1e6))
      ->group(load);
  app.add_option("--requests", options.requests,
                 "requests of each client in a run; with --rate: of the run (4)")
      ->check(positive)
      ->type_name("N")
      ->group(load);
  app.add_option("--seconds", options.seconds, "or its length; what then still runs is cancelled")
      ->check(CLI::Range(0.01, 1e7))
      ->type_name("S")
      ->group(load);
  app.add_option(
         "--connections", options.connections,
         "connections that the clients share, at least: each costs the server writes of its\n"
         "own; more are opened where the streams of one would be too many (1)")
      ->check(CLI::Range(1, 1000))
      ->type_name("N")
      ->group(load);
  app.add_option("--warm-up", options.warm_up_seconds,
                 "seconds of the same load before the --seconds of a run, which do not count (0)")
      ->check(CLI::Range(0.0, 1e7))
      ->type_name("S")
      ->group(load);
  app.add_option("--pairs", options.pairs,
                 "runs of each step and mode, each with every kind of drafting (3)")
      ->check(positive)
      ->type_name("N")
      ->group(load);
  app.add_option_function<double>(
         "--most-stolen", [&options](double percent) { options.most_stolen = percent / 100; },
         "on a virtual machine: a pair is run again when others got more than this of the "
         "processor time in one of its runs (100: never)")
      ->check(CLI::Range(0.0, 100.0))
      ->type_name("PERCENT")
      ->group(load);
  AddList(app, "--modes", options.modes, "MODE,…",
          "greedy, sampled, reproducible (default: greedy)")
      ->check(CLI::IsMember({"greedy", "sampled", "reproducible"}))
      ->group(load);
  AddList(app, "--drafting", options.drafting, "KIND,…",
          "off, on (--draft-length tokens a round), auto (as the server chooses); default auto,off")
      ->check(CLI::IsMember({"on", "off", "auto"}))
      ->group(load);
  app.add_option("--draft-length", options.draft_length,
                 "draft tokens a round of --drafting on (4)")
      ->check(positive)
      ->type_name("K")
      ->group(load);

  const std::string requests = "Requests";
  app.add_option("--prompts", options.prompts, "one prompt a line (default: six openings of tales)")
      ->type_name("FILE")
      ->group(requests);
  AddLength(app, "--prompt-lengths",
            "tokens: fixed:N, uniform:A-B or lognormal:MEDIAN,SIGMA (default: the prompts as they "
            "are)",
            [&options](LengthDistribution length) { options.prompt_length = length; });
  AddLength(app, "--output-lengths", "tokens, likewise; end of text is ignored (fixed:64)",
            [&options](LengthDistribution length) { options.output_length = length; });
  app.add_option("--shared-prefix", options.shared_prefix, "tokens that all prompts begin with (0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(requests);
  app.add_option("--cancel-fraction", options.cancel_fraction,
                 "share of requests whose client leaves before the end (0)")
      ->check(CLI::Range(0.0, 1.0))
      ->type_name("F")
      ->group(requests);
  app.add_option("--temperature", options.temperature, "of sampled and reproducible (1)")
      ->type_name("T")
      ->group(requests);
  app.add_option("--seed", options.seed, "of lengths, prompts, arrivals and sampling (1)")
      ->type_name("N")
      ->group(requests);
  app.add_option("--json", options.json, "write all numbers there")
      ->type_name("FILE")
      ->group("Output");
  AddColor(app, options.color);
  AddSession(app, options.session);
}

void AddTokenize(CLI::App& app, TokenizeOptions& options) {
  app.add_option("TEXT", options.text, "the text; - reads standard input")
      ->type_name("")
      ->required();
  app.add_flag("--no-special-tokens", options.no_special_tokens,
               "do not put the beginning-of-text token first")
      ->group("Output");
  app.add_flag("--pieces", options.pieces, "one line a token, with its text")->group("Output");
  AddSession(app, options.session);
}

void AddTop(CLI::App& app, TopOptions& options) {
  app.add_option("--admin", options.admin, "admin address of a router, HOST:PORT (127.0.0.1:9464)")
      ->type_name("ADDRESS")
      ->group("Server");
  AddClientSecurity(app, options.security);
  app.add_option("--interval", options.interval, "seconds from one frame to the next (1)")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("S")
      ->group("Output");
  app.add_flag("--once", options.once, "one frame, and that is it")->group("Output");
  AddColor(app, options.color);
}

void AddHealthcheck(CLI::App& app, HealthcheckOptions& options) {
  app.add_option("--admin", options.admin,
                 "admin address of a router or a worker, HOST:PORT (127.0.0.1:9464)")
      ->type_name("ADDRESS")
      ->group("Server");
  app.add_flag("--tls", options.tls, "it speaks TLS; any certificate will do")->group("Server");
}

// Whether the command line itself says it: what comes from the environment was not parsed.
bool IsTyped(const CLI::App& app, const std::string& name) {
  const std::vector<CLI::Option*>& typed = app.parse_order();
  return std::find(typed.begin(), typed.end(), app.get_option(name)) != typed.end();
}

// A server that runs has its models already. Those that the environment names are for other commands.
std::string CheckSession(const CLI::App& app, SessionOptions& session) {
  if (session.connect.empty()) return "";
  if (IsTyped(app, "--target") || IsTyped(app, "--draft") || IsTyped(app, "--models")) {
    return "--target, --draft and --models are for a private server, --connect names one that "
           "runs: give one or the other";
  }
  session.server.target.clear();
  session.server.draft.clear();
  session.server.models.clear();
  return "";
}

std::string CheckBenchServe(const CLI::App& app, BenchServeOptions& options) {
  if (options.requests > 0 && options.seconds > 0) {
    return "--requests and --seconds both end a run: give one or the other";
  }
  if (options.warm_up_seconds > 0 && options.seconds == 0) {
    return "--warm-up comes before --seconds: give both, or neither";
  }
  return CheckSession(app, options.session);
}

std::string CheckGenerate(const CLI::App& app, GenerateOptions& options) {
  if (options.prompt.empty() == options.prompt_file.empty()) {
    return options.prompt.empty() ? "a PROMPT is needed (or - for standard input, or --prompt-file)"
                                  : "give a PROMPT or --prompt-file, not both";
  }
  return CheckSession(app, options.session);
}

// Parses into `options`, which `add` has bound to the app; `check` returns what is wrong with them together, and
// drops what does not count beside the rest.
template <typename Options>
Command Parse(const std::string& name, const std::string& description,
              std::vector<std::string> arguments,
              const std::function<void(CLI::App&, Options&)>& add,
              const std::function<std::string(const CLI::App&, Options&)>& check) {
  const auto app = MakeApp(name, description);
  Options options;
  add(*app, options);
  UseEnvironment(*app);
  std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the back
  const std::string hint = "\n       (tandem " + name + " --help lists the options)";
  try {
    app->parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    return ShowText{WithoutDoubleBlankLines(app->help())};
  } catch (const CLI::Error& error) {
    return UsageError{error.what() + hint};
  }
  const std::string problem = check(*app, options);
  if (!problem.empty()) return UsageError{problem + hint};
  return options;
}

}  // namespace

Command ParseCommandLine(std::vector<std::string> arguments) {
  if (arguments.empty()) return UsageError{std::string("a command is needed\n\n") + kOverview};
  const std::string name = arguments.front();
  arguments.erase(arguments.begin());
  if (name == "--help" || name == "-h" || name == "help") return ShowText{kOverview};
  if (name == "--version") return ShowText{std::string("tandem ") + TANDEM_VERSION + "\n"};
  if (name == "serve") {
    return Parse<ServeArguments>(
        name,
        "Starts the router and its two workers, keeps them running and serves until Ctrl-C or "
        "SIGTERM.\nPrints `ready: ADDRESS` on standard output when it can serve, logs on standard "
        "error.",
        std::move(arguments), AddServe, [](const CLI::App&, ServeArguments&) { return ""; });
  }
  if (name == "generate") {
    return Parse<GenerateOptions>(
        name,
        "Streams the completion of a prompt, each token in the colour of how it came about, and "
        "sums up what it cost.",
        std::move(arguments), AddGenerate, CheckGenerate);
  }
  if (name == "bench" && !arguments.empty() && arguments.front() == "serve") {
    arguments.erase(arguments.begin());
    return Parse<BenchServeOptions>(
        "bench serve",
        "Puts a load of many clients on a server, with and without drafting in interleaved pairs, "
        "and tells throughput,\nlatencies and what limits them. docs/cli.md says how each number "
        "is "
        "computed.",
        std::move(arguments), AddBenchServe, CheckBenchServe);
  }
  if (name == "bench") {
    return Parse<BenchOptions>(
        name,
        "Measures prompts × draft lengths × modes against plain decoding in interleaved pairs, "
        "beside what theory predicts.\ndocs/cli.md says how each number is computed.",
        std::move(arguments), AddBench, [](const CLI::App& app, BenchOptions& options) {
          return CheckSession(app, options.session);
        });
  }
  if (name == "tokenize") {
    return Parse<TokenizeOptions>(name, "Prints the token ids of a text.", std::move(arguments),
                                  AddTokenize, [](const CLI::App& app, TokenizeOptions& options) {
                                    return CheckSession(app, options.session);
                                  });
  }
  if (name == "info") {
    return Parse<InfoArguments>(
        name, "Prints what a server serves.", std::move(arguments),
        [](CLI::App& app, InfoArguments& info) { AddSession(app, info.session); },
        [](const CLI::App& app, InfoArguments& info) { return CheckSession(app, info.session); });
  }
  if (name == "top") {
    return Parse<TopOptions>(
        name,
        "Shows what a router does: tokens per second, acceptance, rounds, slots, KV cache, events. "
        "The same as the live\npage at its admin address.",
        std::move(arguments), AddTop, [](const CLI::App&, TopOptions&) { return ""; });
  }
  if (name == "healthcheck") {
    return Parse<HealthcheckOptions>(
        name,
        "Exits with 0 when the process whose admin address that is says that it is ready, else "
        "with 1 and why. Asks without\na token, and does not check who answers: for probes on the "
        "same machine.",
        std::move(arguments), AddHealthcheck,
        [](const CLI::App&, HealthcheckOptions&) { return ""; });
  }
  return UsageError{
      "there is no command \"" + name +
      "\" (serve, generate, bench, tokenize, info, top, healthcheck; tandem --help says "
      "more)"};
}

}  // namespace tandem::cli
