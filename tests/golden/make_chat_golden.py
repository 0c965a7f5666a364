#!/usr/bin/env python3
"""Writes chat_templates.json: chat templates, and what transformers' apply_chat_template prints with them.

The templates are those that model families ship; of the long ones the statements of plain chat, and as many other turns as
the whole has. "text" null: the template refuses the conversation. `date` is given as date_string, and to kvfold as
auto:DATE. Run with transformers 5.24 and jinja2."""
import json
import os

import tokenizers
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
SYSTEM = """{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
"""
TURN = "'<|start_header_id|>assistant<|end_header_id|>\\n\\n'"


def llama31(date, tool_turns):
    return """{{- bos_token }}
{%- if not date_string is defined %}
""" + date + """
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- The system message #}
""" + SYSTEM + """
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\\n" }}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools is not none %}
    {{- '<|start_header_id|>user<|end_header_id|>\\n\\n' -}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
""" + "".join("        {{- %s -}}\n" % TURN for _ in range(tool_turns)) + """    {%- else %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\\n\\n" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- """ + TURN + """ }}
{%- endif %}
"""


def phi4_turn(role):
    return "if (message['role'] == '" + role + "') %}{{'<|im_start|>" + role + "<|im_sep|>' + message['content'] + '<|im_end|>'}}"


def phi3(system):
    def turn(role):
        return "{{'<|" + role + "|>\n' + message['content'] + '<|end|>\n'}}"
    return ("{% for message in messages %}{% if " + system + " %}" + turn("system") + "{% elif message['role'] == 'user' %}" + turn("user")
            + "{% elif message['role'] == 'assistant' %}" + turn("assistant")
            + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}")


def mistral(answer):
    return """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- for message in loop_messages %}
    {%- if (message["role"] == "user") != (loop.index0 % 2 == 0) %}
        {{- raise_exception("roles must alternate") }}
    {%- endif %}
{%- endfor %}

{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and false %}
            {{- "[AVAILABLE_TOOLS][" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST]" + system_message + "\\n\\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST]" + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message["role"] == "assistant" %}
        {{- """ + answer + """ + eos_token}}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
"""


ALTERNATE = ("{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate "
             "user/assistant/user/assistant/...') }}{% endif %}")
MODEL = "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
TULU = ("{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}"
        "{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}"
        "{% if not loop.last %}{{ '<|assistant|>\n'  + message['content'] + eos_token + '\n' }}"
        "{% else %}{{ '<|assistant|>\n'  + message['content'] + eos_token }}{% endif %}{% endif %}"
        "{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}")
TODAY = ('    {%- if strftime_now is defined %}\n        {%- set date_string = strftime_now("%d %b %Y") %}\n    {%- else %}\n'
         '        {%- set date_string = "26 Jul 2024" %}\n    {%- endif %}')
TEMPLATES = {
    "llama3.1": llama31('    {%- set date_string = "26 Jul 2024" %}', 2),
    "llama3.2": llama31(TODAY, 1),
    "gemma2": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
              "{% for message in messages %}" + ALTERNATE + MODEL
              + "{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
              "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    "gemma3": """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '\n\n' -%}
    {%- else -%}
        {%- set first_user_prefix = "" -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    """ + ALTERNATE.replace("{%", "{%-").replace("%}", "-%}") + "\n    " + MODEL.replace("{%", "{%-").replace("%}", "-%}") + """
    {{ '<start_of_turn>' + role + '\n' + (first_user_prefix if loop.first else "") }}
    {%- if message['content'] is string -%}
        {{ message['content'] | trim }}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
    {{ '<end_of_turn>\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model\n'}}
{%- endif -%}
""",
    "phi3": phi3("message['role'] == 'system'"),
    "phi3.5": phi3("message['role'] == 'system' and message['content']"),
    "phi4": "{% for message in messages %}{% " + phi4_turn("system") + "{% el" + phi4_turn("user") + "{% el" + phi4_turn("assistant")
            + "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}",
    "phi4-mini": "{% for message in messages %}{% if message['role'] == 'system' and 'tools' in message and message['tools'] is not none %}"
                 "{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + message['tools'] + '<|/tool|>' + '<|end|>' }}"
                 "{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}"
                 "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}{% endif %}",
    "tulu3": TULU,
    "olmo2": "{{ bos_token }}" + TULU,
    "nemo": mistral('message["content"]'),
    "ministral": mistral('" " + message["content"]|trim'),
    "lfm2": """{{- bos_token -}}
{%- set system_prompt = "" -%}
{%- set ns = namespace(system_prompt="") -%}
{%- if messages[0]["role"] == "system" -%}
    {%- set ns.system_prompt = messages[0]["content"] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- if tools -%}
    {%- set ns.system_prompt = ns.system_prompt + "[]" -%}
{%- endif -%}
{%- if ns.system_prompt -%}
    {{- "<|im_start|>system\\n" + ns.system_prompt + "<|im_end|>\\n" -}}
{%- endif -%}
{%- for message in messages -%}
    {{- "<|im_start|>" + message["role"] + "\\n" -}}
    {%- set content = message["content"] -%}
    {%- if message["role"] == "tool" -%}
        {%- set content = "<|tool_response_start|>" + content + "<|tool_response_end|>" -%}
    {%- endif -%}
    {{- content + "<|im_end|>\\n" -}}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{- "<|im_start|>assistant\\n" -}}
{%- endif -%}
""",
}
TALKS = [
    ([("user", "one")], True, None),
    ([("user", "one"), ("assistant", "two \n"), ("user", "\tthree")], True, None),
    ([("system", " s\n"), ("user", " one "), ("assistant", "two")], False, None),
    ([("system", ""), ("user", "one"), ("assistant", ""), ("user", "x"), ("assistant", "y")], False, None),
    ([("user", "one"), ("assistant", "two"), ("system", "late")], True, None),
    ([("user", "one"), ("assistant", "two")], True, "01 Jan 2025"),
]


def main():
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, unk_token="x"))
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words, bos_token="<s>", eos_token="</s>")
    out = []
    for name, template in TEMPLATES.items():
        talks = []
        for talk, prompt, date in TALKS:
            messages = [{"role": role, "content": content} for role, content in talk]
            try:
                text = tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, add_generation_prompt=prompt,
                                                     date_string=date or "26 Jul 2024")
            except Exception:
                text = None
            talks.append({"messages": messages, "prompt": prompt, "text": text, **({"date": date} if date else {})})
        out.append({"name": name, "template": template, "talks": talks})
    with open(os.path.join(HERE, "chat_templates.json"), "w", encoding="utf-8") as file:
        json.dump(out, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
