"""The part of the table of settings that is about access rules."""

from storage_engine.core.settings.setting import Setting, SettingType

AUTHORIZER = "authorizer.class.name"
SUPER_USERS = "super.users"
ALLOW_IF_NO_RULE = "allow.everyone.if.no.acl.found"

ACCESS_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name=AUTHORIZER,
        type=SettingType.STRING,
        choices=("AclAuthorizer", "kafka.security.authorizer.AclAuthorizer"),
        doc="AclAuthorizer: clients may do what access rules allow (default: they may do all).",
    ),
    Setting(
        name=SUPER_USERS,
        type=SettingType.STRING,
        form="a list of kind:name, separated by semicolons, for example User:admin;User:broker",
        doc="Those who may do everything, whatever the rules say: administrators and brokers.",
    ),
    Setting(
        name=ALLOW_IF_NO_RULE,
        type=SettingType.BOOLEAN,
        default=False,
        doc="With true, what no access rule is about may be used by everybody.",
    ),
)
