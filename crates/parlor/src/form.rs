//! Forms of agents, filled in line by line at a terminal.

use std::io::{self, Write};

use parlor_json::{Json, JsonStr, Object, elements, string_literal, text};

use crate::output::{BOLD, DIM, RED};
use crate::render::safe;

/// What an agent wants to have filled in, and how far that is.
#[derive(Debug)]
pub(crate) struct Form {
    message: String,
    /// A link that the person is to open; there are no fields then.
    url: Option<String>,
    fields: Vec<Field>,
    /// Whether the person wants to fill it in.
    is_begun: bool,
    /// The values so far, by the name of their field.
    values: Object,
    index: usize,
    /// What was wrong with the last line.
    problem: Option<String>,
}

#[derive(Debug)]
struct Field {
    name: JsonStr,
    title: String,
    description: Option<String>,
    is_required: bool,
    default: Option<Json>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Text {
        min: Option<usize>,
        max: Option<usize>,
    },
    Number {
        is_whole: bool,
        min: Option<f64>,
        max: Option<f64>,
    },
    Boolean,
    /// One of these: value and title.
    One(Vec<(Json, String)>),
    /// Any of these.
    Many(Vec<(Json, String)>),
}

/// What became of a form.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormStatus {
    /// Another line is needed.
    Open,
    /// It can be answered with this.
    Done(Object),
}

impl Form {
    /// Reads the params of an elicitation; `None` if it has something that cannot be filled in here.
    pub(crate) fn read(params: &Object) -> Option<Self> {
        let message = string(params, "message").unwrap_or_default();
        let mut form = Self {
            message,
            url: string(params, "url"),
            fields: Vec::new(),
            is_begun: false,
            values: Object::default(),
            index: 0,
            problem: None,
        };
        if string(params, "mode").as_deref() == Some("url") {
            return form.url.is_some().then_some(form);
        }
        form.url = None;
        let schema = Object::parse(params.get("requestedSchema")?.raw()).ok()?;
        let required = schema.get("required").and_then(|list| elements(list.raw())).unwrap_or_default();
        let required: Vec<_> = required.into_iter().filter_map(JsonStr::from_raw).collect();
        let properties = Object::parse(schema.get("properties")?.raw()).ok()?;
        for (name, schema) in properties.iter() {
            let is_required = required.contains(name);
            match Field::read(name, is_required, schema) {
                Some(field) => form.fields.push(field),
                // What nobody knows how to fill in can only be left out.
                None if is_required => return None,
                None => {}
            }
        }
        Some(form)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Shows what is to be typed next.
    pub(crate) fn show(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.is_begun {
            writeln!(out, "{BOLD}? {}{BOLD:#}", safe(&self.message.replace('\n', " ")))?;
            let first = if let Some(url) = &self.url {
                writeln!(out, "  {DIM}link{DIM:#} {}", safe(url))?;
                "Done"
            } else {
                "Fill in"
            };
            writeln!(out, "  1  {first}\n  2  Decline")?;
            return write!(out, "Answer (1-2): ");
        }
        if let Some(problem) = &self.problem {
            writeln!(out, "  {RED}{}{RED:#}", safe(problem))?;
        }
        let Some(field) = self.fields.get(self.index) else { return Ok(()) };
        let star = if field.is_required { " *" } else { "" };
        writeln!(out, "  {BOLD}{}{BOLD:#}{star}", safe(&field.title.replace('\n', " ")))?;
        for line in field.description.iter().flat_map(|text| text.lines()) {
            writeln!(out, "    {DIM}{}{DIM:#}", safe(line))?;
        }
        if let Kind::One(options) | Kind::Many(options) = &field.kind {
            for (index, (_, title)) in options.iter().enumerate() {
                writeln!(out, "    {}  {}", index + 1, safe(&title.replace('\n', " ")))?;
            }
        }
        let default = field.default.as_ref().map(|default| format!(" [{}]", safe(default.as_str())));
        let default = default.unwrap_or_default();
        let how = match &field.kind {
            Kind::Text { .. } => "Text",
            Kind::Number { is_whole: true, .. } => "Whole number",
            Kind::Number { .. } => "Number",
            Kind::Boolean => "y or n",
            Kind::One(_) => "A number",
            Kind::Many(_) => "Numbers, with commas between them",
        };
        write!(out, "  {how}{default}: ")
    }

    /// Takes a line that was typed.
    pub(crate) fn typed(&mut self, line: &str) -> FormStatus {
        let line = line.trim();
        if !self.is_begun {
            return match (line, &self.url) {
                ("2", _) => FormStatus::Done(action("decline", None)),
                ("1", Some(_)) => FormStatus::Done(action("accept", None)),
                ("1", None) => {
                    self.is_begun = true;
                    self.end()
                }
                _ => FormStatus::Open,
            };
        }
        let Some(field) = self.fields.get(self.index) else { return self.end() };
        match field.value(line) {
            Ok(value) => {
                if let Some(value) = value {
                    self.values.set(field.name.clone(), value);
                }
                self.problem = None;
                self.index += 1;
            }
            Err(problem) => self.problem = Some(format!("{}: {problem}", field.title)),
        }
        self.end()
    }

    fn end(&self) -> FormStatus {
        if self.index < self.fields.len() {
            return FormStatus::Open;
        }
        FormStatus::Done(action("accept", Some(&self.values)))
    }
}

impl Field {
    fn read(name: &JsonStr, is_required: bool, schema: &Json) -> Option<Self> {
        let schema = Object::parse(schema.raw()).ok()?;
        let number = |name: &str| schema.get(name)?.as_str().parse::<f64>().ok();
        let length = |name: &str| schema.get(name)?.as_str().parse::<usize>().ok();
        let kind = match string(&schema, "type")?.as_str() {
            "string" => match options(&schema) {
                Some(options) => Kind::One(options),
                None => Kind::Text { min: length("minLength"), max: length("maxLength") },
            },
            whole @ ("integer" | "number") => {
                let is_whole = whole == "integer";
                Kind::Number { is_whole, min: number("minimum"), max: number("maximum") }
            }
            "boolean" => Kind::Boolean,
            "array" => Kind::Many(options(&Object::parse(schema.get("items")?.raw()).ok()?)?),
            _ => return None,
        };
        Some(Self {
            title: string(&schema, "title").unwrap_or_else(|| name.to_text().into_owned()),
            name: name.clone(),
            description: string(&schema, "description"),
            is_required,
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            kind,
        })
    }

    /// The value that a line means, none if it is left out; or what is wrong with it.
    fn value(&self, line: &str) -> Result<Option<Json>, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("this is required".to_owned()),
            };
        }
        let json = |text: String| Json::parse(text).map_err(|_| "this is no number".to_owned());
        let one = |options: &[(Json, String)], typed: &str| {
            let index = typed.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let chosen = index.and_then(|index| options.get(index));
            chosen.map(|(value, _)| value.clone()).ok_or_else(|| format!("choose 1 to {}", options.len()))
        };
        match &self.kind {
            Kind::Text { min, max } => {
                let count = line.chars().count();
                if min.is_some_and(|min| count < min) || max.is_some_and(|max| count > max) {
                    return Err(format!("{} characters are {}", range(*min, *max), "needed"));
                }
                json(string_literal(line)).map(Some)
            }
            Kind::Number { is_whole, min, max } => {
                let number: f64 = line.parse().map_err(|_| "this is no number".to_owned())?;
                if *is_whole && line.parse::<i64>().is_err() {
                    return Err("this is no whole number".to_owned());
                }
                if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                    return Err(format!("it has to be {}", range(*min, *max)));
                }
                json(line.to_owned()).map(Some)
            }
            Kind::Boolean => match line.to_lowercase().as_str() {
                "y" | "yes" | "true" => json("true".to_owned()).map(Some),
                "n" | "no" | "false" => json("false".to_owned()).map(Some),
                _ => Err("type y or n".to_owned()),
            },
            Kind::One(options) => one(options, line).map(Some),
            Kind::Many(options) => {
                let typed = line.split([',', ' ']).filter(|typed| !typed.is_empty());
                let chosen: Vec<_> = typed.map(|typed| one(options, typed)).collect::<Result<_, _>>()?;
                let chosen: Vec<_> = chosen.iter().map(Json::as_str).collect();
                json(format!("[{}]", chosen.join(","))).map(Some)
            }
        }
    }
}

fn range<T: std::fmt::Display>(min: Option<T>, max: Option<T>) -> String {
    match (min, max) {
        (Some(min), Some(max)) => format!("{min} to {max}"),
        (Some(min), None) => format!("{min} or more"),
        (None, Some(max)) => format!("{max} or less"),
        (None, None) => "some".to_owned(),
    }
}

/// What can be chosen: values that are their own titles, or values with titles.
fn options(schema: &Object) -> Option<Vec<(Json, String)>> {
    if let Some(values) = schema.get("enum").and_then(|list| elements(list.raw())) {
        let values = values.into_iter().map(|value| Some((Json::from(value), text(value)?.into_owned())));
        return values.collect();
    }
    let titled = ["oneOf", "anyOf"].into_iter().find_map(|name| elements(schema.get(name)?.raw()))?;
    let titled = titled.into_iter().map(|option| {
        let option = Object::parse(option).ok()?;
        let value = option.get("const")?.clone();
        let title = string(&option, "title").or_else(|| Some(text(value.raw())?.into_owned()))?;
        Some((value, title))
    });
    titled.collect()
}

fn action(action: &str, content: Option<&Object>) -> Object {
    let mut answer = Object::default();
    answer.set("action", &JsonStr::new(action));
    if let Some(content) = content {
        answer.set("content", content.to_json());
    }
    answer
}

fn string(holder: &Object, name: &str) -> Option<String> {
    text(holder.get(name)?.raw()).map(std::borrow::Cow::into_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        Object::parse(Json::parse(text).unwrap().raw()).unwrap()
    }

    /// What a form is answered with when these lines are typed, and all that was shown.
    fn filled(params: &str, lines: &[&str]) -> (Option<String>, String) {
        let mut form = Form::read(&object(params)).unwrap();
        let mut seen = Vec::new();
        let mut answer = None;
        form.show(&mut seen).unwrap();
        for line in lines {
            match form.typed(line) {
                FormStatus::Done(done) => answer = Some(done.to_json().as_str().to_owned()),
                FormStatus::Open => form.show(&mut seen).unwrap(),
            }
        }
        (answer, anstream::adapter::strip_str(&String::from_utf8(seen).unwrap()).to_string())
    }

    const ALL: &str = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["name","size"],
        "properties":{"name":{"type":"string","title":"Your name","maxLength":5},
            "cups":{"type":"integer","minimum":1,"maximum":3},"price":{"type":"number","default":2.5},
            "sugar":{"type":"boolean"},"size":{"type":"string","enum":["s","l"]},
            "milk":{"type":"array","items":{"anyOf":[{"const":"o","title":"Oat"},{"const":"c","title":"Cow"}]}},
            "odd":{"type":"object"}}}}"#;

    #[test]
    fn a_form_is_filled_in_line_by_line() {
        let (answer, seen) =
            filled(ALL, &["1", "", "Adalbert", "Ada", "9", "1.5", "2", "", "y", "7", "2", "1, 2"]);
        let content = r#"{"name":"Ada","cups":2,"price":2.5,"sugar":true,"size":"l","milk":["o","c"]}"#;
        assert_eq!(answer.unwrap(), format!(r#"{{"action":"accept","content":{content}}}"#));
        for wanted in [
            "? Coffee?",
            "Your name *",
            "this is required",
            "5 or less",
            "1 to 3",
            "no whole number",
            "Number [2.5]: ",
            "2  Cow",
        ] {
            assert!(seen.contains(wanted), "{wanted}: {seen}");
        }
    }

    #[test]
    fn what_is_not_required_can_be_left_out_and_a_form_declined() {
        let (answer, _) = filled(ALL, &["1", "Ada", "", "", "", "1", ""]);
        let content = r#"{"name":"Ada","price":2.5,"size":"s"}"#;
        assert_eq!(answer.unwrap(), format!(r#"{{"action":"accept","content":{content}}}"#));
        assert_eq!(filled(ALL, &["x", "2"]).0.as_deref(), Some(r#"{"action":"decline"}"#));
        let link =
            r#"{"mode":"url","message":"Log in","url":"https://example.org/\u001b[2J","elicitationId":"e"}"#;
        let (answer, seen) = filled(link, &["1"]);
        assert_eq!(answer.as_deref(), Some(r#"{"action":"accept"}"#));
        assert!(seen.contains("https://example.org/") && !seen.contains('\u{1b}'), "{seen:?}");
    }

    #[test]
    fn a_form_that_requires_what_nobody_knows_is_not_shown() {
        let params = ALL.replace(r#"["name","size"]"#, r#"["odd"]"#);
        assert!(Form::read(&object(&params)).is_none());
    }
}
