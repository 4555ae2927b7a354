//! Prompts for the input that a tool requests.

use pegboard::redact::is_secret_name;
use pegboard::schema::Schema;
use serde_json::{Map, Value, json};

use super::arguments::ArgumentSchema;
use super::format::{BOLD, DIM, PLAIN, one_line};

pub(crate) mod terminal;

/// Maximum number of characters shown of a name or description.
const MAX_CHARACTERS: usize = 200;

/// Interactive user interface for prompts.
pub(crate) trait Prompter: Send {
    /// Prints a line.
    fn print(&mut self, text: &str);
    /// Reads one line; `None` at end of input.
    fn read_line(&mut self, prompt: &str, echo: Echo) -> Option<String>;
}

/// Echo of typed characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// Characters are shown.
    Shown,
    /// Characters are hidden.
    Hidden,
}

/// Prompts for each of several input requests; the answers have the keys of the requests.
pub(crate) fn answer(questions: &Value, prompter: &mut dyn Prompter) -> Value {
    let questions = questions.as_object().into_iter().flatten();
    questions
        .map(|(name, question)| (name.clone(), answer_one(question, prompter)))
        .collect::<Map<_, _>>()
        .into()
}

/// Summarizes input requests in one line, for an error message.
pub(crate) fn summary(questions: &Value) -> String {
    let questions = questions.as_object().into_iter().flatten();
    let messages = questions.map(|(_, question)| {
        let params = &question["params"];
        let message = one_line(params["message"].as_str().unwrap_or_default(), MAX_CHARACTERS);
        let fields = params["requestedSchema"]["properties"].as_object().into_iter().flatten();
        let fields: Vec<String> = fields.map(|(name, _)| one_line(name, MAX_CHARACTERS)).collect();
        if fields.is_empty() { message } else { format!("{message} ({})", fields.join(", ")) }
    });
    messages.collect::<Vec<_>>().join("; ")
}

fn answer_one(question: &Value, prompter: &mut dyn Prompter) -> Value {
    let method = question["method"].as_str().unwrap_or_default();
    if method != "elicitation/create" {
        let method = one_line(method, MAX_CHARACTERS);
        prompter.print(&format!(
            "{DIM}The tool requests {method}, which is not supported on the command line.{PLAIN}"
        ));
        return json!({"action": "decline"});
    }
    let params = &question["params"];
    let message = params["message"].as_str().unwrap_or("The tool requests input.");
    prompter.print(&format!("{BOLD}{message}{PLAIN}"));
    let answer =
        if params["mode"] == "url" { open_url(params, prompter) } else { fill_form(params, prompter) };
    match answer {
        Ok(Some(content)) if content.is_null() => json!({"action": "accept"}),
        Ok(Some(content)) => json!({"action": "accept", "content": content}),
        Ok(None) => json!({"action": "decline"}),
        Err(PromptCanceled) => json!({"action": "cancel"}),
    }
}

/// The user closed the input in the middle of an answer.
struct PromptCanceled;

/// Answer to a prompt; `None` if the user declined.
type PromptResult = Result<Option<Value>, PromptCanceled>;

fn open_url(params: &Value, prompter: &mut dyn Prompter) -> PromptResult {
    prompter.print(&format!("  Open {}", one_line(params["url"].as_str().unwrap_or_default(), 2_000)));
    let is_confirmed = confirm("  Continue when done?", prompter)?;
    Ok(is_confirmed.then_some(Value::Null))
}

fn fill_form(params: &Value, prompter: &mut dyn Prompter) -> PromptResult {
    let schema = &params["requestedSchema"];
    let needed = schema["required"].as_array();
    let is_needed = |name: &str| needed.is_some_and(|needed| needed.iter().any(|needed| needed == name));
    let mut content = Map::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let field = FormField {
            name,
            schema,
            need: if is_needed(name) { Requirement::Required } else { Requirement::Optional },
        };
        if let Some(value) = field.ask(prompter)? {
            content.insert(name.clone(), value);
        }
    }
    let is_confirmed = confirm("  Send this to the tool?", prompter)?;
    Ok(is_confirmed.then_some(content.into()))
}

fn confirm(question: &str, prompter: &mut dyn Prompter) -> Result<bool, PromptCanceled> {
    loop {
        let answer = prompter
            .read_line(&format!("{question} {DIM}[Y/n]{PLAIN} "), Echo::Shown)
            .ok_or(PromptCanceled)?;
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => prompter.print("  enter y or n"),
        }
    }
}

/// Requirement level of a form field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Requirement {
    Required,
    Optional,
}

/// Field of a form.
struct FormField<'f> {
    name: &'f str,
    schema: &'f Value,
    need: Requirement,
}

impl FormField<'_> {
    /// Prompts until the answer is valid, or is left empty where that is allowed.
    fn ask(&self, prompter: &mut dyn Prompter) -> PromptResult {
        let title = self.schema["title"].as_str().unwrap_or(self.name);
        let description = self.schema["description"].as_str().unwrap_or_default();
        if !description.is_empty() {
            prompter.print(&format!("  {DIM}{}{PLAIN}", one_line(description, MAX_CHARACTERS)));
        }
        let choices = self.choices();
        for (number, choice) in choices.iter().enumerate() {
            prompter.print(&format!("    {} {}", number + 1, choice.title));
        }
        let mut remarks = vec![self.kind(&choices)];
        match (&self.schema["default"], self.need) {
            (Value::Null, Requirement::Required) => {}
            (Value::Null, Requirement::Optional) => remarks.push("optional".to_owned()),
            (default, _) => remarks.push(format!("default {}", one_line(&text(default), MAX_CHARACTERS))),
        }
        let title = one_line(title, MAX_CHARACTERS);
        let prompt = format!("  {title} {DIM}({}){PLAIN}: ", remarks.join(", "));
        let echo = if self.is_secret() { Echo::Hidden } else { Echo::Shown };
        loop {
            let line = prompter.read_line(&prompt, echo).ok_or(PromptCanceled)?;
            match self.read(&line, &choices) {
                Ok(value) => return Ok(value),
                Err(why) => prompter.print(&format!("  {}", one_line(&why, 400))),
            }
        }
    }

    fn read(&self, line: &str, choices: &[FormChoice]) -> Result<Option<Value>, String> {
        let line = if self.is_secret() { line } else { line.trim() };
        if line.is_empty() {
            let default = &self.schema["default"];
            return match (default, self.need) {
                (Value::Null, Requirement::Required) => Err("a value is required".to_owned()),
                (Value::Null, Requirement::Optional) => Ok(None),
                (default, _) => Ok(Some(default.clone())),
            };
        }
        let value = match (choices, self.is_list()) {
            ([], _) => ArgumentSchema::root(self.schema).read(line)?,
            (choices, false) => choose(line, choices)?,
            (choices, true) => {
                let chosen = line.split(',').map(|part| choose(part.trim(), choices));
                chosen.collect::<Result<Vec<_>, _>>()?.into()
            }
        };
        let verdict = Schema::new(self.schema.clone()).check(&value);
        match verdict.errors.first() {
            Some(violation) => Err(violation.text().trim_start_matches("$: ").to_owned()),
            None => Ok(Some(value)),
        }
    }

    fn kind(&self, choices: &[FormChoice]) -> String {
        let kind = match self.schema["type"].as_str() {
            _ if !choices.is_empty() && self.is_list() => "numbers, comma-separated",
            _ if !choices.is_empty() => "a number",
            Some("integer") => "integer",
            Some("number") => "number",
            Some("boolean") => "yes or no",
            _ => self.schema["format"].as_str().unwrap_or("text"),
        };
        one_line(kind, MAX_CHARACTERS)
    }

    fn is_list(&self) -> bool {
        self.schema["type"] == "array"
    }

    fn is_secret(&self) -> bool {
        self.schema["format"] == "password" || self.schema["writeOnly"] == true || is_secret_name(self.name)
    }

    /// Choices that the schema offers.
    fn choices(&self) -> Vec<FormChoice> {
        let schema = if self.is_list() { &self.schema["items"] } else { self.schema };
        if let Some(values) = schema["enum"].as_array() {
            let titles = schema["enumNames"].as_array();
            let title = |index: usize| titles.and_then(|titles| titles.get(index)?.as_str());
            let choice = |(index, value): (usize, &Value)| FormChoice::new(value, title(index));
            return values.iter().enumerate().map(choice).collect();
        }
        let titled = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
        let titled = titled.into_iter().flatten().filter(|each| each.get("const").is_some());
        titled.map(|each| FormChoice::new(&each["const"], each["title"].as_str())).collect()
    }
}

/// One choice of a field.
struct FormChoice {
    value: Value,
    title: String,
}

impl FormChoice {
    fn new(value: &Value, title: Option<&str>) -> Self {
        let title = title.map_or_else(|| text(value), str::to_owned);
        Self { value: value.clone(), title: one_line(&title, MAX_CHARACTERS) }
    }
}

/// Returns the choice with this number, title or value.
fn choose(written: &str, choices: &[FormChoice]) -> Result<Value, String> {
    let numbered = written.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let named = || {
        let is_it = |choice: &&FormChoice| {
            [&choice.title, &text(&choice.value)].iter().any(|name| name.eq_ignore_ascii_case(written))
        };
        choices.iter().find(is_it)
    };
    let chosen = numbered
        .or_else(named)
        .ok_or_else(|| format!("no choice {written}; expected 1 to {}", choices.len()))?;
    Ok(chosen.value.clone())
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(text).collect::<Vec<_>>().join(", "),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::fmt::Write;

    use super::*;

    /// Prompter that plays back these lines, then ends, and records the output.
    struct Script {
        lines: VecDeque<&'static str>,
        seen: String,
    }

    impl Prompter for Script {
        fn print(&mut self, text: &str) {
            writeln!(self.seen, "{}", anstream::adapter::strip_str(text)).unwrap();
        }

        fn read_line(&mut self, prompt: &str, echo: Echo) -> Option<String> {
            let line = self.lines.pop_front();
            let shown = match (echo, line) {
                (_, None) => "^D",
                (Echo::Hidden, Some(_)) => "(hidden)",
                (Echo::Shown, Some(line)) => line,
            };
            self.print(&format!("{prompt}{shown}"));
            line.map(str::to_owned)
        }
    }

    fn play(params: &Value, lines: &[&'static str]) -> String {
        let mut prompter = Script { lines: lines.iter().copied().collect(), seen: String::new() };
        let questions = json!({"q": {"method": "elicitation/create", "params": params}});
        let answers = answer(&questions, &mut prompter);
        format!("{}{}", prompter.seen, answers["q"])
    }

    #[test]
    fn every_field_type_is_prompted_for_until_valid() {
        let params = json!({"message": "Who are you?", "requestedSchema": {"type": "object", "properties": {
            "name": {"type": "string", "title": "Your name", "minLength": 2},
            "age": {"type": "integer", "minimum": 0, "maximum": 150},
            "height": {"type": "number", "description": "In metres"},
            "sure": {"type": "boolean", "default": true},
            "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
            "colour": {"oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0f0", "title": "Green"}]},
            "days": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["mon", "tue", "wed"]}},
            "password": {"type": "string"},
        }, "required": ["name", "age", "days"]}});
        let lines = [
            "", "A", "Ada", "old", "200", "36", "1.7", "", "3", "2", "green", "mon, fri", "1,wed", "  x ",
            "perhaps", "y",
        ];
        insta::assert_snapshot!(play(&params, &lines), @r##"
        Who are you?
          Your name (text): 
          a value is required
          Your name (text): A
          string length 1 < minLength 2
          Your name (text): Ada
          age (integer): old
          'old' is not an integer
          age (integer): 200
          value 200 > maximum 150
          age (integer): 36
          In metres
          height (number, optional): 1.7
          sure (yes or no, default yes): 
            1 Small
            2 Large
          size (a number, optional): 3
          no choice 3; expected 1 to 2
          size (a number, optional): 2
            1 Red
            2 Green
          colour (a number, optional): green
            1 mon
            2 tue
            3 wed
          days (numbers, comma-separated): mon, fri
          no choice fri; expected 1 to 3
          days (numbers, comma-separated): 1,wed
          password (text, optional): (hidden)
          Send this to the tool? [Y/n] perhaps
          enter y or n
          Send this to the tool? [Y/n] y
        {"action":"accept","content":{"name":"Ada","age":36,"height":1.7,"sure":true,"size":"l","colour":"#0f0","days":["mon","wed"],"password":"  x "}}
        "##);
    }

    #[test]
    fn input_requests_can_be_declined_or_canceled() {
        let params = json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}});
        insta::assert_snapshot!(play(&params, &["", "n"]), @r#"
        Sure?
          a (text, optional): 
          Send this to the tool? [Y/n] n
        {"action":"decline"}
        "#);
        insta::assert_snapshot!(play(&params, &[]), @r#"
        Sure?
          a (text, optional): ^D
        {"action":"cancel"}
        "#);
    }

    #[test]
    fn a_url_is_shown() {
        let params = json!({"mode": "url", "message": "Log in", "url": "https://example.org/?a=1", "elicitationId": "1"});
        insta::assert_snapshot!(play(&params, &[""]), @r#"
        Log in
          Open https://example.org/?a=1
          Continue when done? [Y/n] 
        {"action":"accept"}
        "#);
    }

    #[test]
    fn unsupported_input_requests_are_declined() {
        let mut prompter = Script { lines: VecDeque::new(), seen: String::new() };
        let answers =
            answer(&json!({"q": {"method": "sampling/createMessage", "params": {}}}), &mut prompter);
        insta::assert_snapshot!(format!("{}{answers}", prompter.seen), @r#"
        The tool requests sampling/createMessage, which is not supported on the command line.
        {"q":{"action":"decline"}}
        "#);
    }
}
