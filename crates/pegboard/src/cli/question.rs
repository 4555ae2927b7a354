//! Questions of a tool, asked of the person at the terminal.

use pegboard::schema::Schema;
use serde_json::{Map, Value, json};

use super::arguments::Shape;
use super::words::{BOLD, DIM, PLAIN, harmless, one_line};

pub(crate) mod terminal;

/// How many characters of a name or a description are shown.
const MAX_CHARACTERS: usize = 200;

/// Somebody who can be asked.
pub(crate) trait Person: Send {
    /// Says something on a line of its own.
    fn say(&mut self, text: &str);
    /// Asks for one line; `None` if there is none, because the person wants to leave.
    fn ask(&mut self, prompt: &str, echo: Echo) -> Option<String>;
}

/// Whether what is typed is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    /// It is.
    Shown,
    /// It is not.
    Hidden,
}

/// Asks several questions, each under its name, and gives the answers under the same names.
pub(crate) fn answer(questions: &Value, person: &mut dyn Person) -> Value {
    let questions = questions.as_object().into_iter().flatten();
    questions
        .map(|(name, question)| (name.clone(), answer_one(question, person)))
        .collect::<Map<_, _>>()
        .into()
}

/// What questions want to know, for somebody who is not asked.
pub(crate) fn summary(questions: &Value) -> String {
    let questions = questions.as_object().into_iter().flatten();
    let messages = questions.map(|(_, question)| {
        let params = &question["params"];
        let message = one_line(params["message"].as_str().unwrap_or_default(), MAX_CHARACTERS);
        let fields = params["requestedSchema"]["properties"].as_object().into_iter().flatten();
        let fields: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
        if fields.is_empty() { message } else { format!("{message} ({})", fields.join(", ")) }
    });
    messages.collect::<Vec<_>>().join("; ")
}

fn answer_one(question: &Value, person: &mut dyn Person) -> Value {
    let method = question["method"].as_str().unwrap_or_default();
    if method != "elicitation/create" {
        let method = one_line(method, MAX_CHARACTERS);
        person.say(&format!(
            "{DIM}The tool asks for {method}, which nobody can answer on the command line.{PLAIN}"
        ));
        return json!({"action": "decline"});
    }
    let params = &question["params"];
    let message = params["message"].as_str().unwrap_or("The tool wants to know something.");
    person.say(&format!("{BOLD}{}{PLAIN}", harmless(message)));
    let answer = if params["mode"] == "url" { visit(params, person) } else { form(params, person) };
    match answer {
        Ok(Some(content)) if content.is_null() => json!({"action": "accept"}),
        Ok(Some(content)) => json!({"action": "accept", "content": content}),
        Ok(None) => json!({"action": "decline"}),
        Err(Left) => json!({"action": "cancel"}),
    }
}

/// The person has left in the middle of an answer.
struct Left;

/// What a person gives, if it wants to give something.
type Given = Result<Option<Value>, Left>;

fn visit(params: &Value, person: &mut dyn Person) -> Given {
    person.say(&format!("  Open {}", one_line(params["url"].as_str().unwrap_or_default(), 2_000)));
    let is_wanted = confirm("  Go on when that is done?", person)?;
    Ok(is_wanted.then_some(Value::Null))
}

fn form(params: &Value, person: &mut dyn Person) -> Given {
    let schema = &params["requestedSchema"];
    let needed = schema["required"].as_array();
    let is_needed = |name: &str| needed.is_some_and(|needed| needed.iter().any(|needed| needed == name));
    let mut content = Map::new();
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let field = Field { name, schema, need: if is_needed(name) { Need::Must } else { Need::May } };
        if let Some(value) = field.ask(person)? {
            content.insert(name.clone(), value);
        }
    }
    let is_wanted = confirm("  Send this to the tool?", person)?;
    Ok(is_wanted.then_some(content.into()))
}

fn confirm(question: &str, person: &mut dyn Person) -> Result<bool, Left> {
    loop {
        let answer = person.ask(&format!("{question} {DIM}[Y/n]{PLAIN} "), Echo::Shown).ok_or(Left)?;
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => person.say("  y or n"),
        }
    }
}

/// Whether something must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Must,
    May,
}

/// One thing of a form.
struct Field<'f> {
    name: &'f str,
    schema: &'f Value,
    need: Need,
}

impl Field<'_> {
    /// Asks until the answer fits, or until it is left out where it may be.
    fn ask(&self, person: &mut dyn Person) -> Given {
        let title = self.schema["title"].as_str().unwrap_or(self.name);
        let description = self.schema["description"].as_str().unwrap_or_default();
        if !description.is_empty() {
            person.say(&format!("  {DIM}{}{PLAIN}", one_line(description, MAX_CHARACTERS)));
        }
        let choices = self.choices();
        for (number, choice) in choices.iter().enumerate() {
            person.say(&format!("    {} {}", number + 1, choice.title));
        }
        let mut remarks = vec![self.kind(&choices)];
        match (&self.schema["default"], self.need) {
            (Value::Null, Need::Must) => {}
            (Value::Null, Need::May) => remarks.push("may be left out".to_owned()),
            (usual, _) => remarks.push(format!("usually {}", text(usual))),
        }
        let title = one_line(title, MAX_CHARACTERS);
        let prompt = format!("  {title} {DIM}({}){PLAIN}: ", remarks.join(", "));
        let echo = if self.is_secret() { Echo::Hidden } else { Echo::Shown };
        loop {
            let line = person.ask(&prompt, echo).ok_or(Left)?;
            match self.read(&line, &choices) {
                Ok(value) => return Ok(value),
                Err(why) => person.say(&format!("  {why}")),
            }
        }
    }

    fn read(&self, line: &str, choices: &[Choice]) -> Result<Option<Value>, String> {
        let line = if self.is_secret() { line } else { line.trim() };
        if line.is_empty() {
            let usual = &self.schema["default"];
            return match (usual, self.need) {
                (Value::Null, Need::Must) => Err("it must be given".to_owned()),
                (Value::Null, Need::May) => Ok(None),
                (usual, _) => Ok(Some(usual.clone())),
            };
        }
        let value = match (choices, self.is_list()) {
            ([], _) => Shape::root(self.schema).read(line)?,
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

    fn kind(&self, choices: &[Choice]) -> String {
        let kind = match self.schema["type"].as_str() {
            _ if !choices.is_empty() && self.is_list() => "numbers, with commas",
            _ if !choices.is_empty() => "a number",
            Some("integer") => "whole number",
            Some("number") => "number",
            Some("boolean") => "yes or no",
            _ => self.schema["format"].as_str().unwrap_or("text"),
        };
        kind.to_owned()
    }

    fn is_list(&self) -> bool {
        self.schema["type"] == "array"
    }

    fn is_secret(&self) -> bool {
        let name = self.name.to_lowercase();
        self.schema["format"] == "password"
            || self.schema["writeOnly"] == true
            || ["password", "passphrase", "secret", "token", "api_key", "apikey"]
                .iter()
                .any(|word| name.contains(word))
    }

    /// What there is to choose from.
    fn choices(&self) -> Vec<Choice> {
        let schema = if self.is_list() { &self.schema["items"] } else { self.schema };
        if let Some(values) = schema["enum"].as_array() {
            let titles = schema["enumNames"].as_array();
            let title = |place: usize| titles.and_then(|titles| titles.get(place)?.as_str());
            let choice = |(place, value): (usize, &Value)| Choice::new(value, title(place));
            return values.iter().enumerate().map(choice).collect();
        }
        let titled = ["oneOf", "anyOf"].iter().find_map(|key| schema[*key].as_array());
        let titled = titled.into_iter().flatten().filter(|each| each.get("const").is_some());
        titled.map(|each| Choice::new(&each["const"], each["title"].as_str())).collect()
    }
}

/// One of several values.
struct Choice {
    value: Value,
    title: String,
}

impl Choice {
    fn new(value: &Value, title: Option<&str>) -> Self {
        let title = title.map_or_else(|| text(value), str::to_owned);
        Self { value: value.clone(), title: one_line(&title, MAX_CHARACTERS) }
    }
}

/// The choice that is meant: by its number, its title, or itself.
fn choose(written: &str, choices: &[Choice]) -> Result<Value, String> {
    let numbered = written.parse::<usize>().ok().and_then(|number| choices.get(number.checked_sub(1)?));
    let named = || {
        let is_it = |choice: &&Choice| {
            [&choice.title, &text(&choice.value)].iter().any(|name| name.eq_ignore_ascii_case(written))
        };
        choices.iter().find(is_it)
    };
    let chosen =
        numbered.or_else(named).ok_or_else(|| format!("there is no {written}; 1 to {}", choices.len()))?;
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

    /// Somebody who says these lines and then leaves, and what was seen meanwhile.
    struct Script {
        lines: VecDeque<&'static str>,
        seen: String,
    }

    impl Person for Script {
        fn say(&mut self, text: &str) {
            writeln!(self.seen, "{}", anstream::adapter::strip_str(text)).unwrap();
        }

        fn ask(&mut self, prompt: &str, echo: Echo) -> Option<String> {
            let line = self.lines.pop_front();
            let shown = match (echo, line) {
                (_, None) => "^D",
                (Echo::Hidden, Some(_)) => "(hidden)",
                (Echo::Shown, Some(line)) => line,
            };
            self.say(&format!("{prompt}{shown}"));
            line.map(str::to_owned)
        }
    }

    fn play(params: &Value, lines: &[&'static str]) -> String {
        let mut person = Script { lines: lines.iter().copied().collect(), seen: String::new() };
        let questions = json!({"q": {"method": "elicitation/create", "params": params}});
        let answers = answer(&questions, &mut person);
        format!("{}{}", person.seen, answers["q"])
    }

    #[test]
    fn every_kind_of_field_is_asked_for_until_it_fits() {
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
          it must be given
          Your name (text): A
          string length 1 < minLength 2
          Your name (text): Ada
          age (whole number): old
          'old' is not a whole number
          age (whole number): 200
          value 200 > maximum 150
          age (whole number): 36
          In metres
          height (number, may be left out): 1.7
          sure (yes or no, usually yes): 
            1 Small
            2 Large
          size (a number, may be left out): 3
          there is no 3; 1 to 2
          size (a number, may be left out): 2
            1 Red
            2 Green
          colour (a number, may be left out): green
            1 mon
            2 tue
            3 wed
          days (numbers, with commas): mon, fri
          there is no fri; 1 to 3
          days (numbers, with commas): 1,wed
          password (text, may be left out): (hidden)
          Send this to the tool? [Y/n] perhaps
          y or n
          Send this to the tool? [Y/n] y
        {"action":"accept","content":{"name":"Ada","age":36,"height":1.7,"sure":true,"size":"l","colour":"#0f0","days":["mon","wed"],"password":"  x "}}
        "##);
    }

    #[test]
    fn whoever_does_not_want_to_answer_need_not() {
        let params = json!({"message": "Sure?", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string"}}}});
        insta::assert_snapshot!(play(&params, &["", "n"]), @r#"
        Sure?
          a (text, may be left out): 
          Send this to the tool? [Y/n] n
        {"action":"decline"}
        "#);
        insta::assert_snapshot!(play(&params, &[]), @r#"
        Sure?
          a (text, may be left out): ^D
        {"action":"cancel"}
        "#);
    }

    #[test]
    fn an_address_is_shown() {
        let params = json!({"mode": "url", "message": "Log in", "url": "https://example.org/?a=1", "elicitationId": "1"});
        insta::assert_snapshot!(play(&params, &[""]), @r#"
        Log in
          Open https://example.org/?a=1
          Go on when that is done? [Y/n] 
        {"action":"accept"}
        "#);
    }

    #[test]
    fn what_is_no_question_for_a_person_is_declined() {
        let mut person = Script { lines: VecDeque::new(), seen: String::new() };
        let answers = answer(&json!({"q": {"method": "sampling/createMessage", "params": {}}}), &mut person);
        insta::assert_snapshot!(format!("{}{answers}", person.seen), @r#"
        The tool asks for sampling/createMessage, which nobody can answer on the command line.
        {"q":{"action":"decline"}}
        "#);
    }
}
