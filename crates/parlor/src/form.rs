//! Forms (elicitations) of agents, filled in line by line at the terminal.

use std::io::{self, Write};

use parlor_json::{Json, JsonStr, Object, string_literal};

use crate::output::{BOLD, DIM, RED};
use crate::render::safe;

/// A form and the values that were entered so far.
#[derive(Debug)]
pub(crate) struct Form {
    message: String,
    /// The link to open, for a form without fields.
    url: Option<String>,
    fields: Vec<Field>,
    /// Whether the user has chosen to fill it in.
    is_started: bool,
    /// The values by field name.
    values: Object,
    /// The index of the field that is entered next.
    current: usize,
    /// Why the last line was rejected.
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
    /// One of these values, with their titles.
    One(Vec<(Json, String)>),
    /// Any number of these values, with their titles.
    Many(Vec<(Json, String)>),
}

/// Whether a form is complete.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FormStatus {
    /// Another line is needed.
    Incomplete,
    /// All fields are entered, or the form was declined: the response.
    Complete(Object),
}

impl Form {
    /// Parses the params of an elicitation; `None` if a required field has an unsupported type.
    pub(crate) fn parse(params: &Object) -> Option<Self> {
        let message = params.get_string("message").unwrap_or_default();
        let mut form = Self {
            message,
            url: params.get_string("url"),
            fields: Vec::new(),
            is_started: false,
            values: Object::default(),
            current: 0,
            problem: None,
        };
        if params.get_string("mode").as_deref() == Some("url") {
            return form.url.is_some().then_some(form);
        }
        form.url = None;
        let schema = Object::parse(params.get("requestedSchema")?.raw()).ok()?;
        let required = schema.get_array("required").unwrap_or_default();
        let required: Vec<_> = required.into_iter().filter_map(JsonStr::from_raw).collect();
        let properties = Object::parse(schema.get("properties")?.raw()).ok()?;
        for (name, schema) in properties.iter() {
            let is_required = required.contains(name);
            match Field::parse(name, is_required, schema) {
                Some(field) => form.fields.push(field),
                // An optional field of an unsupported type is left out.
                None if is_required => return None,
                None => {}
            }
        }
        Some(form)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// The fields with their types, or the link to open.
    pub(crate) fn fields(&self) -> Vec<String> {
        self.url.iter().cloned().chain(self.fields.iter().map(Field::describe)).collect()
    }

    /// Prints the next question.
    pub(crate) fn show(&self, out: &mut impl Write) -> io::Result<()> {
        if !self.is_started {
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
        let Some(field) = self.fields.get(self.current) else { return Ok(()) };
        let mark = if field.is_required { " (required)" } else { "" };
        writeln!(out, "  {BOLD}{}{BOLD:#}{mark}", safe(&field.title.replace('\n', " ")))?;
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
            Kind::Many(_) => "Numbers, separated by commas",
        };
        write!(out, "  {how}{default}: ")
    }

    /// Handles a line that was typed.
    pub(crate) fn on_line(&mut self, line: &str) -> FormStatus {
        let line = line.trim();
        if !self.is_started {
            return match (line, &self.url) {
                ("2", _) => FormStatus::Complete(response("decline", None)),
                ("1", Some(_)) => FormStatus::Complete(response("accept", None)),
                ("1", None) => {
                    self.is_started = true;
                    self.status()
                }
                _ => FormStatus::Incomplete,
            };
        }
        let Some(field) = self.fields.get(self.current) else { return self.status() };
        match field.value(line) {
            Ok(value) => {
                if let Some(value) = value {
                    self.values.set(field.name.clone(), value);
                }
                self.problem = None;
                self.current += 1;
            }
            Err(problem) => self.problem = Some(format!("{}: {problem}", field.title)),
        }
        self.status()
    }

    fn status(&self) -> FormStatus {
        if self.current < self.fields.len() {
            return FormStatus::Incomplete;
        }
        FormStatus::Complete(response("accept", Some(&self.values)))
    }
}

impl Field {
    fn parse(name: &JsonStr, is_required: bool, schema: &Json) -> Option<Self> {
        let schema = Object::parse(schema.raw()).ok()?;
        let number = |name: &str| schema.get(name)?.as_str().parse::<f64>().ok();
        let length = |name: &str| schema.get(name)?.as_str().parse::<usize>().ok();
        let kind = match schema.get_string("type")?.as_str() {
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
            title: schema.get_string("title").unwrap_or_else(|| name.to_text().into_owned()),
            name: name.clone(),
            description: schema.get_string("description"),
            is_required,
            default: schema.get("default").filter(|default| !default.is_null()).cloned(),
            kind,
        })
    }

    /// The title, the type or the options, and whether it is required.
    fn describe(&self) -> String {
        let titles = |options: &[(Json, String)]| {
            options.iter().map(|(_, title)| title.as_str()).collect::<Vec<_>>().join(", ")
        };
        let kind = match &self.kind {
            Kind::Text { .. } => "text".to_owned(),
            Kind::Number { is_whole: true, .. } => "whole number".to_owned(),
            Kind::Number { .. } => "number".to_owned(),
            Kind::Boolean => "yes or no".to_owned(),
            Kind::One(options) => format!("one of: {}", titles(options)),
            Kind::Many(options) => format!("any of: {}", titles(options)),
        };
        let required = if self.is_required { "; required" } else { "" };
        format!("{} ({kind}{required})", self.title).replace('\n', " ")
    }

    /// Parses a line: the value, `None` if an optional field is left out, or why it is invalid.
    fn value(&self, line: &str) -> Result<Option<Json>, String> {
        if line.is_empty() {
            return match (&self.default, self.is_required) {
                (Some(default), _) => Ok(Some(default.clone())),
                (None, false) => Ok(None),
                (None, true) => Err("required".to_owned()),
            };
        }
        let json = |text: String| Json::parse(text).map_err(|_| "not a number".to_owned());
        let one = |options: &[(Json, String)], typed: &str| {
            let index = typed.trim().parse::<usize>().ok().and_then(|n| n.checked_sub(1));
            let chosen = index.and_then(|index| options.get(index));
            chosen
                .map(|(value, _)| value.clone())
                .ok_or_else(|| format!("type a number from 1 to {}", options.len()))
        };
        match &self.kind {
            Kind::Text { min, max } => {
                let count = line.chars().count();
                if min.is_some_and(|min| count < min) || max.is_some_and(|max| count > max) {
                    return Err(format!("the length has to be {}", range(*min, *max)));
                }
                json(string_literal(line)).map(Some)
            }
            Kind::Number { is_whole, min, max } => {
                let number: f64 = line.parse().map_err(|_| "not a number".to_owned())?;
                if *is_whole && line.parse::<i64>().is_err() {
                    return Err("not a whole number".to_owned());
                }
                if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                    return Err(format!("the number has to be {}", range(*min, *max)));
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
        (None, None) => "any".to_owned(),
    }
}

/// The values of an enumeration, with their titles.
fn options(schema: &Object) -> Option<Vec<(Json, String)>> {
    if let Some(values) = schema.get_array("enum") {
        let values = values.into_iter().map(|value| Some((Json::from(value), value.to_text()?.into_owned())));
        return values.collect();
    }
    let titled = ["oneOf", "anyOf"].into_iter().find_map(|name| schema.get_array(name))?;
    let titled = titled.into_iter().map(|option| {
        let option = Object::parse(option).ok()?;
        let value = option.get("const")?.clone();
        let title = option.get_string("title").or_else(|| Some(value.to_text()?.into_owned()))?;
        Some((value, title))
    });
    titled.collect()
}

fn response(action: &str, content: Option<&Object>) -> Object {
    let mut response = Object::default();
    response.set("action", JsonStr::new(action));
    if let Some(content) = content {
        response.set("content", content.to_json());
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        Object::parse(Json::parse(text).unwrap().raw()).unwrap()
    }

    /// The response to a form after these lines, and the output.
    fn filled(params: &str, lines: &[&str]) -> (Option<String>, String) {
        let mut form = Form::parse(&object(params)).unwrap();
        let mut seen = Vec::new();
        let mut response = None;
        form.show(&mut seen).unwrap();
        for line in lines {
            match form.on_line(line) {
                FormStatus::Complete(done) => response = Some(done.to_json().as_str().to_owned()),
                FormStatus::Incomplete => form.show(&mut seen).unwrap(),
            }
        }
        (response, anstream::adapter::strip_str(&String::from_utf8(seen).unwrap()).to_string())
    }

    const ALL: &str = r#"{"mode":"form","message":"Coffee?","requestedSchema":{"type":"object","required":["name","size"],
        "properties":{"name":{"type":"string","title":"Your name","maxLength":5},
            "cups":{"type":"integer","minimum":1,"maximum":3},"price":{"type":"number","default":2.5},
            "sugar":{"type":"boolean"},"size":{"type":"string","enum":["s","l"]},
            "milk":{"type":"array","items":{"anyOf":[{"const":"o","title":"Oat"},{"const":"c","title":"Cow"}]}},
            "nested":{"type":"object"}}}}"#;

    #[test]
    fn a_form_is_filled_in_line_by_line() {
        let (answer, seen) =
            filled(ALL, &["1", "", "Adalbert", "Ada", "9", "1.5", "2", "", "y", "7", "2", "1, 2"]);
        let content = r#"{"name":"Ada","cups":2,"price":2.5,"sugar":true,"size":"l","milk":["o","c"]}"#;
        assert_eq!(answer.unwrap(), format!(r#"{{"action":"accept","content":{content}}}"#));
        for wanted in [
            "? Coffee?",
            "Your name (required)",
            "required",
            "5 or less",
            "1 to 3",
            "not a whole number",
            "Number [2.5]: ",
            "2  Cow",
        ] {
            assert!(seen.contains(wanted), "{wanted}: {seen}");
        }
    }

    #[test]
    fn optional_fields_can_be_left_out_and_a_form_can_be_declined() {
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
    fn a_form_with_a_required_field_of_an_unsupported_type_is_not_shown() {
        let params = ALL.replace(r#"["name","size"]"#, r#"["nested"]"#);
        assert!(Form::parse(&object(&params)).is_none());
    }
}
