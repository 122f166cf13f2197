// Prints what the `openai` package of npm reads from a gateway, as one JSON object.
// usage: node chat.mjs BASE_URL MODEL
import {createRequire} from 'node:module';

const {OpenAI} = createRequire(`${process.env.OPENAI_CLIENTS}/`)('openai');
const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({baseURL, apiKey: 'none', maxRetries: 0});
const tools = [{type: 'function', function: {name: 'weather', parameters: {type: 'object', properties: {}}}}];
const messages = [{role: 'user', content: 'Hi'}];
const result = {};

result.models = (await client.models.list()).data.map((one) => one.id);
const whole = await client.chat.completions.create({model, messages, logprobs: true, top_logprobs: 1, n: 2});
result.texts = whole.choices.map((choice) => choice.message.content);
result.logprobs = whole.choices[0].logprobs.content.map((token) => token.token);
result.usage = whole.usage;

// The helper collects the parts of a stream, also those of calls.
const runner = client.chat.completions.stream({model, messages, tools, stream_options: {include_usage: true}});
result.parts = 0;
runner.on('chunk', () => ++result.parts);
const final = await runner.finalChatCompletion();
result.message = final.choices[0].message;
result.finish_reason = final.choices[0].finish_reason;
result.stream_usage = final.usage;

const completion = await client.completions.create({model, prompt: 'a<|greet|>', max_tokens: 2, echo: true, stream: true});
result.completion = '';
for await (const chunk of completion) result.completion += chunk.choices[0].text;

const left = await client.chat.completions.create({model, messages, stream: true});
for await (const chunk of left) {
  result.left = chunk.choices[0].delta.role;
  break;  // cancels the request
}

result.errors = {};
for (const [name, request] of Object.entries({
  NotFoundError: {model: 'other', messages},
  BadRequestError: {model, messages: []},
})) {
  try {
    await client.chat.completions.create(request);
  } catch (error) {
    result.errors[name] = [error.constructor.name, error.status, error.param];
  }
}
console.log(JSON.stringify(result));
