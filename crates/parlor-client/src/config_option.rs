//! The options of a session: mode, model and others.

use parlor_json::{Json, JsonRef, Object};
use parlor_session::{Slot, Transcript};

/// An option of a session that people can set.
///
/// ```
/// use parlor_client::{ConfigOption, Json, Object};
///
/// let reported = r#"{"configOptions":[{"configId":"m","name":"Mode","category":"mode","type":"select",
///     "currentValue":"ask","options":[{"name":"Safe","options":[{"value":"ask","name":"Ask first"}]}]}]}"#;
/// let options = ConfigOption::all_in(&Json::parse(reported).unwrap().to_object().unwrap());
/// assert_eq!(options[0].selected().unwrap().name, "Ask first");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConfigOption {
    /// Its id.
    pub id: Json,
    /// Its name, for people.
    pub name: String,
    /// What it is about, such as `mode` or `model`.
    pub category: Option<String>,
    /// The value in force.
    pub value: Option<Json>,
    /// Whether its values are true and false.
    pub is_boolean: bool,
    /// The values that can be set, without their groups; empty if the agent lists none.
    pub values: Vec<OptionValue>,
}

/// A value of an option.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OptionValue {
    /// The value.
    pub value: Json,
    /// Its name, for people.
    pub name: String,
    /// A longer text about it.
    pub description: Option<String>,
}

impl ConfigOption {
    /// The options in the fields of an update or of a response. Those without an id are left out.
    pub fn all_in(fields: &Object) -> Vec<Self> {
        let options = fields.get_array("configOptions").unwrap_or_default();
        options.into_iter().filter_map(|option| Self::read(&option.to_object()?)).collect()
    }

    /// The options of a session: those that were reported last, else those in the response that opened it.
    pub fn of_session(transcript: &Transcript, opened: &Object) -> Vec<Self> {
        let has_options = |fields: &&Object| fields.get_array("configOptions").is_some();
        let reported = transcript.slot(Slot::Options).map(|slot| &slot.fields).filter(has_options);
        Self::all_in(reported.unwrap_or(opened))
    }

    fn read(option: &Object) -> Option<Self> {
        let id = option.get("configId").or_else(|| option.get("id"))?.clone();
        let mut values = Vec::new();
        for value in option.get_array("options").unwrap_or_default() {
            let Some(value) = value.to_object() else { continue };
            match value.get_array("options") {
                Some(group) => {
                    let group = group.into_iter().filter_map(JsonRef::to_object);
                    values.extend(group.filter_map(|value| OptionValue::read(&value)));
                }
                None => values.extend(OptionValue::read(&value)),
            }
        }
        Some(Self {
            name: option.get_string("name").unwrap_or_else(|| text(&id)),
            category: option.get_string("category"),
            value: option.get("currentValue").cloned(),
            is_boolean: option.get_str("type").as_deref() == Some("boolean"),
            values,
            id,
        })
    }

    /// The value in force, if the agent lists it.
    pub fn selected(&self) -> Option<&OptionValue> {
        self.values.iter().find(|value| Some(&value.value) == self.value.as_ref())
    }

    /// The name of the value in force, or the value itself if the agent does not list it.
    pub fn value_name(&self) -> Option<String> {
        let listed = self.selected().map(|value| value.name.clone());
        listed.or_else(|| self.value.as_ref().map(text))
    }

    /// Whether it is of a category.
    pub fn is_of(&self, category: &str) -> bool {
        self.category.as_deref() == Some(category)
    }
}

impl OptionValue {
    fn read(value: &Object) -> Option<Self> {
        let id = value.get("value")?.clone();
        let name = value.get_string("name").unwrap_or_else(|| text(&id));
        Some(Self { value: id, name, description: value.get_string("description") })
    }
}

/// The text of a string, or the JSON of another value.
fn text(value: &Json) -> String {
    value.to_text().map_or_else(|| value.as_str().to_owned(), Into::into)
}
