//! Forms (elicitations) of agents, filled in line by line at the terminal.

use std::io::{self, Write};

use parlor_client::{Elicitation, FieldKind, FormField};
use parlor_json::{Json, Object};

use crate::output::{BOLD, DIM, RED};
use crate::render::safe;
use crate::tty::number_problem;

/// A form and the values that were entered so far.
#[derive(Debug)]
pub(crate) struct Form {
    elicitation: Elicitation,
    /// Whether the user may leave it to another time and place.
    can_be_left: bool,
    /// Whether the user has chosen to fill it in.
    is_started: bool,
    /// The values by field name.
    values: Object,
    /// The index of the field that is entered next.
    current: usize,
    /// Why the last line was rejected.
    problem: Option<String>,
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
        let elicitation = Elicitation::parse(params)?;
        Some(Self {
            elicitation,
            can_be_left: false,
            is_started: false,
            values: Object::default(),
            current: 0,
            problem: None,
        })
    }

    /// Offers to answer it later, as long as no field was entered.
    pub(crate) fn with_later(self) -> Self {
        Self { can_be_left: true, ..self }
    }

    /// Whether a line leaves the form open.
    pub(crate) fn is_left_by(&self, line: &str) -> bool {
        self.can_be_left && !self.is_started && line.trim() == "l"
    }

    pub(crate) fn message(&self) -> &str {
        &self.elicitation.message
    }

    /// The fields with their types, or the link to open.
    pub(crate) fn fields(&self) -> Vec<String> {
        let Elicitation { url, fields, .. } = &self.elicitation;
        url.iter().cloned().chain(fields.iter().map(describe)).collect()
    }

    /// Prints the next question.
    pub(crate) fn show(&self, out: &mut impl Write) -> io::Result<()> {
        if let Some(problem) = &self.problem {
            writeln!(out, "  {RED}{}{RED:#}", safe(problem))?;
        }
        if !self.is_started {
            writeln!(out, "{BOLD}? {}{BOLD:#}", safe(&self.message().replace('\n', " ")))?;
            let first = if let Some(url) = &self.elicitation.url {
                writeln!(out, "  {DIM}link{DIM:#} {}", safe(url))?;
                "Done"
            } else {
                "Fill in"
            };
            writeln!(out, "  1  {first}\n  2  Decline")?;
            let later = if self.can_be_left { ", l later" } else { "" };
            return write!(out, "Answer (1-2{later}): ");
        }
        let Some(field) = self.elicitation.fields.get(self.current) else { return Ok(()) };
        let mark = if field.is_required { " (required)" } else { "" };
        writeln!(out, "  {BOLD}{}{BOLD:#}{mark}", safe(&field.title.replace('\n', " ")))?;
        for line in field.description.iter().flat_map(|text| text.lines()) {
            writeln!(out, "    {DIM}{}{DIM:#}", safe(line))?;
        }
        if let FieldKind::One(options) | FieldKind::Many(options) = &field.kind {
            for (index, (_, title)) in options.iter().enumerate() {
                writeln!(out, "    {}  {}", index + 1, safe(&title.replace('\n', " ")))?;
            }
        }
        let default = field.default.as_ref().map(|default| format!(" [{}]", safe(default.as_str())));
        let default = default.unwrap_or_default();
        let how = match &field.kind {
            FieldKind::Number { is_whole: true, .. } => "Whole number",
            FieldKind::Number { .. } => "Number",
            FieldKind::Boolean => "y or n",
            FieldKind::One(_) => "A number",
            FieldKind::Many(_) => "Numbers, separated by commas",
            FieldKind::Text { .. } | _ => "Text",
        };
        write!(out, "  {how}{default}: ")
    }

    /// Handles a line that was typed.
    pub(crate) fn on_line(&mut self, line: &str) -> FormStatus {
        let line = line.trim();
        if !self.is_started {
            self.problem = None;
            return match (line, &self.elicitation.url) {
                ("2", _) => FormStatus::Complete(Elicitation::decline()),
                ("1", Some(_)) => FormStatus::Complete(self.elicitation.accept(&self.values)),
                ("1", None) => {
                    self.is_started = true;
                    self.status()
                }
                _ => {
                    self.problem = Some(number_problem(line, 2, &[]));
                    FormStatus::Incomplete
                }
            };
        }
        let Some(field) = self.elicitation.fields.get(self.current) else { return self.status() };
        match value(field, line) {
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

    /// Fills in the form with `NAME=VALUE` arguments: the response, or why one of them is invalid.
    ///
    /// Fields that are not given have their default, or are left out if they are optional.
    pub(crate) fn fill(&mut self, given: &[(String, String)]) -> Result<Object, String> {
        let fields = &self.elicitation.fields;
        let unknown =
            given.iter().find(|(name, _)| fields.iter().all(|field| field.name.to_text() != name.as_str()));
        if let Some((name, _)) = unknown {
            let names: Vec<_> = fields.iter().map(|field| field.name.to_text()).collect();
            return Err(format!("the form has no field '{name}'; it has: {}", names.join(", ")));
        }
        for field in fields {
            let of_field = given.iter().rev().find(|(name, _)| field.name.to_text() == name.as_str());
            let typed = of_field.map(|(_, value)| value.as_str()).unwrap_or_default();
            let value =
                value(field, typed).map_err(|problem| format!("{}: {problem}", field.name.to_text()))?;
            if let Some(value) = value {
                self.values.set(field.name.clone(), value);
            }
        }
        Ok(self.elicitation.accept(&self.values))
    }

    fn status(&self) -> FormStatus {
        if self.current < self.elicitation.fields.len() {
            return FormStatus::Incomplete;
        }
        FormStatus::Complete(self.elicitation.accept(&self.values))
    }
}

/// The name, the title, the type or the options, and whether it is required.
fn describe(field: &FormField) -> String {
    let titles = |options: &[(Json, String)]| {
        options.iter().map(|(_, title)| title.as_str()).collect::<Vec<_>>().join(", ")
    };
    let kind = match &field.kind {
        FieldKind::Number { is_whole: true, .. } => "whole number".to_owned(),
        FieldKind::Number { .. } => "number".to_owned(),
        FieldKind::Boolean => "yes or no".to_owned(),
        FieldKind::One(options) => format!("one of: {}", titles(options)),
        FieldKind::Many(options) => format!("any of: {}", titles(options)),
        FieldKind::Text { .. } | _ => "text".to_owned(),
    };
    let required = if field.is_required { "; required" } else { "" };
    let name = field.name.to_text();
    let title = if field.title == name { String::new() } else { format!(": {}", field.title) };
    format!("{name}{title} ({kind}{required})").replace('\n', " ")
}

/// Parses a line: the value, `None` if an optional field is left out, or why it is invalid.
fn value(field: &FormField, line: &str) -> Result<Option<Json>, String> {
    if line.is_empty() {
        return match (&field.default, field.is_required) {
            (Some(default), _) => Ok(Some(default.clone())),
            (None, false) => Ok(None),
            (None, true) => Err("required".to_owned()),
        };
    }
    let value = match &field.kind {
        FieldKind::Boolean => match line.to_lowercase().as_str() {
            "y" | "yes" | "true" => Json::from(true),
            "n" | "no" | "false" => Json::from(false),
            _ => return Err("type y or n".to_owned()),
        },
        FieldKind::One(options) => one(options, line)?,
        FieldKind::Many(options) => {
            let typed = line.split([',', ' ']).filter(|typed| !typed.is_empty());
            Json::array(typed.map(|typed| one(options, typed)).collect::<Result<Vec<_>, _>>()?)
        }
        FieldKind::Text { .. } | FieldKind::Number { .. } | _ => field.parse_text(line)?,
    };
    Ok(Some(value))
}

/// The option with a typed number, value or title.
fn one(options: &[(Json, String)], typed: &str) -> Result<Json, String> {
    let typed = typed.trim();
    let is_named =
        |(value, title): &&(Json, String)| value.to_text().as_deref() == Some(typed) || title == typed;
    let index = typed.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
    let chosen = options.iter().find(is_named).or_else(|| options.get(index?));
    chosen.map(|(value, _)| value.clone()).ok_or_else(|| format!("type a number from 1 to {}", options.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Object {
        Json::parse(text).unwrap().to_object().unwrap()
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
            "at most 5",
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
        let (answer, seen) = filled(ALL, &["x", "2"]);
        assert_eq!(answer.as_deref(), Some(r#"{"action":"decline"}"#));
        assert!(seen.contains("  there is no 'x': type a number from 1 to 2\n"), "{seen}");
        let link =
            r#"{"mode":"url","message":"Log in","url":"https://example.org/\u001b[2J","elicitationId":"e"}"#;
        let (answer, seen) = filled(link, &["1"]);
        assert_eq!(answer.as_deref(), Some(r#"{"action":"accept"}"#));
        assert!(seen.contains("https://example.org/") && !seen.contains('\u{1b}'), "{seen:?}");
    }

    #[test]
    fn a_form_is_filled_in_with_named_fields() {
        let fill = |given: &[(&str, &str)]| {
            let given: Vec<_> =
                given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let filled = Form::parse(&object(ALL)).unwrap().fill(&given);
            filled.map(|response| response.to_json().as_str().to_owned())
        };
        let content = r#"{"name":"Ada","price":2.5,"size":"l","milk":["o","c"]}"#;
        assert_eq!(
            fill(&[("milk", "Oat,c"), ("size", "l"), ("name", "Ada")]),
            Ok(format!(r#"{{"action":"accept","content":{content}}}"#))
        );
        assert_eq!(fill(&[("size", "l")]), Err("name: required".to_owned()));
        assert_eq!(
            fill(&[("color", "Ada")]),
            Err("the form has no field 'color'; it has: name, cups, price, sugar, size, milk".to_owned())
        );
        let invalid = fill(&[("name", "Ada"), ("size", "xl")]).unwrap_err();
        assert!(invalid.starts_with("size: "), "{invalid}");
    }

    #[test]
    fn a_form_with_a_required_field_of_an_unsupported_type_is_not_shown() {
        let params = ALL.replace(r#"["name","size"]"#, r#"["nested"]"#);
        assert!(Form::parse(&object(&params)).is_none());
    }
}
