"""Two tools. In a project of your own they stand in a package with an entry point of the group `nat.components`."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig


class WeatherConfig(FunctionBaseConfig, name="example_weather"):
    """The weather of a city."""


class ConvertConfig(FunctionBaseConfig, name="example_convert"):
    """Degrees Celsius in Fahrenheit."""


@register_function(config_type=WeatherConfig)
async def weather_tool(config: WeatherConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def weather(city: str) -> str:
        """Tell the temperature of a city in degrees Celsius."""
        return {"Bergen": "11", "Athens": "29"}.get(city, "20")

    yield FunctionInfo.from_fn(weather, description=weather.__doc__)


@register_function(config_type=ConvertConfig)
async def convert_tool(config: ConvertConfig, builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    async def convert(celsius: float) -> str:
        """Convert degrees Celsius to Fahrenheit."""
        return f"{celsius * 9 / 5 + 32:g}"

    yield FunctionInfo.from_fn(convert, description=convert.__doc__)
